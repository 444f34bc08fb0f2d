"""The descriptor of notes on devices; `ringbatch.shm.descriptors` has most others."""

from typing import Final

from ringbatch.shm.descriptors import PAIR


class DeviceNoteWords:
    """Note of a worker on its device, see `ringbatch.shm.device_notes`.

    UUID_HIGH and UUID_LOW are the halves of the UUID of its CUDA device, 0 without one. A
    reader between their two stores finds the UUID of no device. TEXT goes up to a zero; it is empty
    without a device.

        word  name               stored by   how often  loaded by   how often  order
        ----  -----------------  ----------  ---------  ----------  ---------  -------
           0  UUID_HIGH          worker      rarely     status      rarely     relaxed
           1  UUID_LOW           worker      rarely     status      rarely     relaxed
           2  TEXT               worker      rarely     status      rarely     relaxed
    """

    UUID_HIGH: Final = 0
    UUID_LOW: Final = 1
    TEXT: Final = 2
    SIZE: Final = 4 * PAIR
