"""Does what a round of the benchmark asks for, with kazoo. What the orders and answers are is
told in package work, which does the same with the Go libraries."""

import json
import resource
import sys
import threading
import time

from kazoo.client import KazooClient


class Contender:
    """One thread's access to the lock. Lock objects belong to one thread and are used again and again."""

    def __init__(self, client, plan):
        if plan["reads"]:
            self.exclusive = client.WriteLock(plan["path"])
            self.shared = client.ReadLock(plan["path"])
        else:
            self.exclusive = client.Lock(plan["path"])


def dice(i):
    """Numbers from 0 to 99, the same ones for the i-th contender in every language."""
    x = i + 1
    while True:
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
        yield (x >> 16) % 100


class Team:
    def __init__(self, plan):
        self.plan = plan
        self.clients = []
        self.threads = []
        self.errors = []
        self.latencies = []
        self.tries = 0
        self.tries_lock = threading.Lock()
        self.begin = threading.Event()
        self.end = 0.0
        self.let = 0  # drain: how many have been let in
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
        self.take_places()

    def open(self):
        client = KazooClient(hosts=self.plan["server"], timeout=float(self.plan["timeout"]))
        client.start(timeout=30)
        self.clients.append(client)
        return client

    def take_places(self):
        kind = self.plan["kind"]
        if kind == "drain" or self.plan["held"]:
            self.holder = Contender(self.open(), self.plan).exclusive
            self.holder.acquire()
        if kind == "pass":
            self.contenders[0].exclusive.acquire()
            self.start(self.hand_over, None, None)
            return
        work = {"loop": self.loop, "try": self.storm, "drain": self.wait}[kind]
        for i, c in enumerate(self.contenders):
            self.start(work, i, c)

    def start(self, work, i, c):
        def run():
            try:
                work(i, c)
            except Exception as e:  # reported by measure
                self.errors.append(repr(e))

        t = threading.Thread(target=run, daemon=True)
        t.start()
        self.threads.append(t)

    def loop(self, i, c):
        reads = self.plan["reads"]
        numbers = dice(i)
        alone = self.plan["contenders"] == 1
        self.begin.wait()
        while True:
            began = time.perf_counter()
            if began >= self.end:
                return
            lock = c.shared if reads and next(numbers) < reads else c.exclusive
            lock.acquire()
            lock.release()
            self.counts[i] += 1
            if alone:
                self.latencies.append(int((time.perf_counter() - began) * 1e9))

    def mark(self):
        """What is measured begins here."""
        self.from_cpu = cpu()
        self.from_time = time.perf_counter()

    def wait(self, i, c):
        c.exclusive.acquire()
        self.counts[i] += 1
        self.let += 1
        if self.let == self.plan["lead"]:
            self.mark()
        c.exclusive.release()

    def storm(self, i, c):
        tries = 0
        self.begin.wait()
        while time.perf_counter() < self.end:
            tries += 1
            if c.exclusive.acquire(blocking=False):
                self.counts[i] += 1
                c.exclusive.release()
        with self.tries_lock:
            self.tries += tries

    def hand_over(self, *_):
        self.begin.wait()
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
        self.mark()
        self.end = self.from_time + self.plan["millis"] / 1000
        self.begin.set()
        if self.plan["kind"] == "drain":
            self.holder.release()
        for t in self.threads:
            t.join()
        seconds = time.perf_counter() - self.from_time
        after = cpu()
        if self.plan["held"]:
            self.holder.release()
        if self.errors:
            raise RuntimeError("; ".join(self.errors))
        return {
            "seconds": seconds,
            "cpu": after - self.from_cpu,
            "counts": self.counts,
            "tries": self.tries,
            "latencies": self.latencies,
            "allocs": -1,
        }

    def close(self):
        def end(client):
            client.stop()
            client.close()

        enders = [threading.Thread(target=end, args=(c,)) for c in self.clients]
        for t in enders:
            t.start()
        for t in enders:
            t.join()


def cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main():
    team = None
    for line in sys.stdin:
        order, _, argument = line.strip().partition(" ")
        try:
            if order == "prepare":
                team = Team(json.loads(argument))
                answer = "ready"
            elif order == "go":
                answer = "report " + json.dumps(team.measure())
            elif order == "end":
                if team is not None:
                    team.close()
                team, answer = None, "ended"
            else:
                answer = "error unknown order " + order
        except Exception as e:
            answer = "error " + repr(e).replace("\n", "; ")
        print(answer, flush=True)


main()
