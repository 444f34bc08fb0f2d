"""Light load from within the machine, with a connection for each request.

    load.py PORT CLIENTS [KEY]

Prints a line once the first answer has come, and at the end of its standard input how many requests
it has sent and what became of them, as JSON.
"""

import http.client
import json
import sys
import threading
import time
from collections import Counter

PAUSE_S = 0.01
TIMEOUT_S = 60.0


def outcome(port: int, key: str) -> str:
    """Send a request and return its outcome."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    body = json.dumps({"instances": [[1, 2], [3, 4]]})
    try:
        connection.request("POST", "/v1/models/double:predict", body, headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
    except ConnectionRefusedError:
        return "refused"
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"broken: {type(error).__name__}"
    finally:
        connection.close()
    if response.status != http.client.OK:
        return f"status {response.status}"
    return "answered" if answer["predictions"] == [[2, 4], [6, 8]] else "wrong"


def main() -> None:
    """Send requests until told to stop, and print the outcomes."""
    port, clients, *more = sys.argv[1:]
    seen: Counter[str] = Counter()
    slowest = [0.0] * int(clients)
    ending = threading.Event()

    def client(number: int) -> None:
        while not ending.is_set():
            began = time.monotonic()
            found = outcome(int(port), more[0] if more else "")
            slowest[number] = max(slowest[number], time.monotonic() - began)
            seen[found] += 1
            if sum(seen.values()) == 1:
                print("began", flush=True)
            time.sleep(PAUSE_S)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(int(clients))]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    ending.set()
    for thread in threads:
        thread.join()
    print(json.dumps({"seen": seen, "slowest_s": round(max(slowest), 2)}))


main()
