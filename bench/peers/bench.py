"""Runs the rounds of the benchmark with kazoo, as package work does with the Go libraries."""

import json
import sys
import threading
import time

from kazoo.client import KazooClient


class Contender:
    """Takes and releases the lock. Used by one thread."""

    def __init__(self, client, plan):
        if plan["reads"]:
            self.exclusive = client.WriteLock(plan["path"])
            self.shared = client.ReadLock(plan["path"])
        else:
            self.exclusive = client.Lock(plan["path"])


def percentages(i):
    """Generates numbers from 0 to 99, the same for the i-th contender in every language."""
    x = i + 1
    while True:
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
        yield (x >> 16) % 100


class Round:
    def __init__(self, plan):
        self.plan = plan
        self.clients = []
        self.threads = []
        self.errors = []
        self.latencies = []
        self.tries = 0
        self.tries_lock = threading.Lock()
        self.started = threading.Event()  # by the command go
        self.deadline = 0.0  # when a loop or a try ends
        self.granted = 0  # drain: grants so far
        self.holder = None
        self.counts = [0] * plan["contenders"]
        for _ in range(plan["sessions"]):
            self.open()
        self.contenders = [
            Contender(self.clients[i % plan["sessions"]], plan) for i in range(plan["contenders"])
        ]
        for c in self.contenders[: plan["sessions"]]:
            c.exclusive.acquire()
            c.exclusive.release()
            if plan["reads"]:
                c.shared.acquire()
                c.shared.release()
        self.start_contenders()

    def open(self):
        client = KazooClient(hosts=self.plan["server"], timeout=float(self.plan["timeout"]))
        client.start(timeout=30)
        self.clients.append(client)
        return client

    def start_contenders(self):
        kind = self.plan["kind"]
        if kind == "drain" or self.plan["held"]:
            self.holder = Contender(self.open(), self.plan).exclusive
            self.holder.acquire()
        if kind == "pass":
            self.contenders[0].exclusive.acquire()
            self.start(self.pass_on, None, None)
            return
        work = {"loop": self.loop, "try": self.try_loop, "drain": self.lock_once}[kind]
        for i, c in enumerate(self.contenders):
            self.start(work, i, c)

    def start(self, work, i, c):
        def run():
            try:
                work(i, c)
            except Exception as e:  # measure reports the error
                self.errors.append(repr(e))

        t = threading.Thread(target=run, daemon=True)
        t.start()
        self.threads.append(t)

    def loop(self, i, c):
        reads = self.plan["reads"]
        numbers = percentages(i)
        alone = self.plan["contenders"] == 1
        self.started.wait()
        while True:
            began = time.perf_counter()
            if began >= self.deadline:
                return
            lock = c.shared if reads and next(numbers) < reads else c.exclusive
            lock.acquire()
            lock.release()
            self.counts[i] += 1
            if alone:
                self.latencies.append(int((time.perf_counter() - began) * 1e9))

    def lock_once(self, i, c):
        c.exclusive.acquire()
        self.counts[i] += 1
        self.granted += 1
        if self.granted == self.plan["lead"]:
            self.timed_from = time.perf_counter()
        c.exclusive.release()

    def try_loop(self, i, c):
        tries = 0
        self.started.wait()
        while time.perf_counter() < self.deadline:
            tries += 1
            if c.exclusive.acquire(blocking=False):
                self.counts[i] += 1
                c.exclusive.release()
        with self.tries_lock:
            self.tries += tries

    def pass_on(self, *_):
        self.started.wait()
        holder, follower = (c.exclusive for c in self.contenders)
        for n in range(self.plan["count"]):
            granted = []

            def take(lock=follower):
                lock.acquire()
                granted.append(time.perf_counter())

            t = threading.Thread(target=take, daemon=True)
            t.start()
            time.sleep(self.plan["millis"] / 1000)
            released = time.perf_counter()
            holder.release()
            t.join()
            if granted[0] < released:
                raise RuntimeError("granted before the release")
            self.latencies.append(int((granted[0] - released) * 1e9))
            self.counts[n % 2] += 1
            holder, follower = follower, holder

    def measure(self):
        self.timed_from = time.perf_counter()
        self.deadline = self.timed_from + self.plan["millis"] / 1000
        self.started.set()
        if self.plan["kind"] == "drain":
            self.holder.release()
        for t in self.threads:
            t.join()
        seconds = time.perf_counter() - self.timed_from
        if self.plan["held"]:
            self.holder.release()
        if self.errors:
            raise RuntimeError("; ".join(self.errors))
        return {
            "seconds": seconds,
            "counts": self.counts,
            "tries": self.tries,
            "latencies": self.latencies,
            "allocs": -1,
        }

    def close(self):
        def end(client):
            client.stop()
            client.close()

        closing = [threading.Thread(target=end, args=(c,)) for c in self.clients]
        for t in closing:
            t.start()
        for t in closing:
            t.join()


def main():
    current = None
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        try:
            if command == "prepare":
                current = Round(json.loads(argument))
                answer = "ready"
            elif command == "go":
                answer = "report " + json.dumps(current.measure())
            elif command == "end":
                if current is not None:
                    current.close()
                current, answer = None, "ended"
            else:
                answer = "error unknown command " + command
        except Exception as e:
            answer = "error " + repr(e).replace("\n", "; ")
        print(answer, flush=True)


main()
