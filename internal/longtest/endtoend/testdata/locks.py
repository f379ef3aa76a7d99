"""Takes and releases locks of kazoo for a test. The argument is the server's address. Each line of
the input is an order: "take ID KIND PATH" or "release ID". A lock that is won is answered with
"held ID", one that is released with "released ID", and a failure with "failed ID TEXT". The order
"count ID KIND PATH N FILE" takes a lock N times and each time adds 1 to the number in the file, or
reads it twice, and is answered with "counted ID". The program ends when its input ends."""

import sys
import threading

from kazoo.client import KazooClient

KINDS = {
    "lock": lambda client, path: client.Lock(path),
    "write": lambda client, path: client.WriteLock(path),
    "read": lambda client, path: client.ReadLock(path),
    "lock+": lambda client, path: client.Lock(path, extra_lock_patterns=["-W-", "-R-"]),
    "write+": lambda client, path: client.WriteLock(path, extra_lock_patterns=["-W-", "-R-"]),
    "read+": lambda client, path: client.ReadLock(path, extra_lock_patterns=["-W-"]),
}

output = threading.Lock()


def say(*words):
    with output:
        print(*words, flush=True)


def hold(client, name, kind, path, release):
    try:
        lock = KINDS[kind](client, path)
        lock.acquire()
        say("held", name)
        release.wait()
        lock.release()
        say("released", name)
    except Exception as e:
        say("failed", name, repr(e).replace("\n", " "))


def read(file):
    with open(file) as f:
        return int(f.read())


def count(client, name, kind, path, n, file):
    try:
        lock = KINDS[kind](client, path)
        for _ in range(n):
            with lock:
                number = read(file)
                if kind != "read":
                    with open(file, "w") as f:
                        f.write(str(number + 1))
                elif read(file) != number:
                    raise RuntimeError("the number has changed beside a reader")
        say("counted", name)
    except Exception as e:
        say("failed", name, repr(e).replace("\n", " "))


def main():
    client = KazooClient(hosts=sys.argv[1], timeout=60.0)
    client.start(timeout=30)
    held = {}
    for line in sys.stdin:
        words = line.split()
        if words[0] == "take":
            _, name, kind, path = words
            release = held[name] = threading.Event()
            args = (client, name, kind, path, release)
            threading.Thread(target=hold, args=args, daemon=True).start()
        elif words[0] == "count":
            _, name, kind, path, n, file = words
            args = (client, name, kind, path, int(n), file)
            threading.Thread(target=count, args=args, daemon=True).start()
        else:
            held.pop(words[1]).set()
    client.stop()
    client.close()


main()
