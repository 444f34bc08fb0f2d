"""What `ringbatch bench` is made of: it asks a server as its clients do, and says what it found."""
