import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.IntSupplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Runs the rounds of the benchmark with Curator, as package work does with the Go libraries. */
public class Bench {
    interface Task {
        void run() throws Exception;
    }

    /** Takes and releases the lock. Used by one thread. */
    static class Contender {
        final InterProcessMutex exclusive;
        final InterProcessMutex shared;

        Contender(CuratorFramework client, String path, boolean readWrite) {
            if (readWrite) {
                InterProcessReadWriteLock lock = new InterProcessReadWriteLock(client, path);
                exclusive = lock.writeLock();
                shared = lock.readLock();
            } else {
                exclusive = new InterProcessMutex(client, path);
                shared = null;
            }
        }
    }

    /** A flat JSON object whose strings have no escapes. */
    static class Plan {
        final String text;

        Plan(String text) {
            this.text = text;
        }

        String get(String name) {
            Matcher m = Pattern.compile("\"" + name + "\":(?:\"([^\"]*)\"|([^,}]*))").matcher(text);
            if (!m.find()) {
                throw new IllegalArgumentException("the plan has no " + name);
            }
            return m.group(1) != null ? m.group(1) : m.group(2);
        }

        int number(String name) {
            return Integer.parseInt(get(name));
        }
    }

    final Plan plan;
    final boolean readWrite;
    final String kind;
    final boolean held;
    final int reads;
    final int untimed;
    final List<CuratorFramework> clients = new ArrayList<>();
    final List<Contender> contenders = new ArrayList<>();
    final List<Thread> threads = new ArrayList<>();
    final List<String> errors = new ArrayList<>();
    final List<Long> latencies = new ArrayList<>();
    final AtomicLong tries = new AtomicLong();
    final AtomicInteger granted = new AtomicInteger(); // drain: grants so far
    final CountDownLatch started = new CountDownLatch(1); // by the command go
    final CountDownLatch firstHolds = new CountDownLatch(1); // pass: the first contender holds the lock
    final long[] counts;
    volatile long deadline; // when a loop or a try ends
    volatile long timedFrom;
    Contender holder;

    Bench(Plan plan, boolean readWrite) throws Exception {
        this.plan = plan;
        this.readWrite = readWrite;
        kind = plan.get("kind");
        held = Boolean.parseBoolean(plan.get("held"));
        reads = plan.number("reads");
        untimed = plan.number("lead");
        int sessions = plan.number("sessions");
        counts = new long[plan.number("contenders")];
        try {
            for (int i = 0; i < sessions; i++) {
                open();
            }
            for (int i = 0; i < counts.length; i++) {
                contenders.add(new Contender(clients.get(i % sessions), plan.get("path"), readWrite));
            }
            for (int i = 0; i < Math.min(sessions, counts.length); i++) {
                contenders.get(i).exclusive.acquire();
                contenders.get(i).exclusive.release();
            }
            startContenders();
        } catch (Exception e) {
            close();
            throw e;
        }
    }

    CuratorFramework open() throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(
            plan.get("server"), plan.number("timeout") * 1000, 15000, new ExponentialBackoffRetry(1000, 3));
        clients.add(client);
        client.start();
        if (!client.blockUntilConnected(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no session with ZooKeeper");
        }
        return client;
    }

    void startContenders() throws Exception {
        if (kind.equals("drain") || held) {
            holder = new Contender(open(), plan.get("path"), readWrite);
            // Curator's locks belong to a thread: this one, which also calls measure.
            holder.exclusive.acquire();
        }
        if (kind.equals("pass")) {
            start(this::pass);
            firstHolds.await();
            return;
        }
        for (int i = 0; i < counts.length; i++) {
            int n = i;
            Contender c = contenders.get(i);
            switch (kind) {
                case "loop": start(() -> loop(n, c)); break;
                case "try": start(() -> tryLoop(n, c)); break;
                case "drain": start(() -> lockOnce(n, c)); break;
                default: throw new IllegalArgumentException("unknown kind of plan " + kind);
            }
        }
    }

    void start(Task task) {
        Thread t = new Thread(() -> {
            try {
                task.run();
            } catch (Throwable e) {
                synchronized (errors) {
                    errors.add(e.toString());
                }
            }
        });
        t.setDaemon(true);
        t.start();
        threads.add(t);
    }

    void loop(int i, Contender c) throws Exception {
        IntSupplier percentage = percentages(i);
        boolean alone = counts.length == 1;
        long n = 0;
        started.await();
        for (;;) {
            long began = System.nanoTime();
            if (began - deadline >= 0) {
                break;
            }
            InterProcessMutex lock = reads > 0 && percentage.getAsInt() < reads ? c.shared : c.exclusive;
            lock.acquire();
            lock.release();
            n++;
            if (alone) {
                latencies.add(System.nanoTime() - began);
            }
        }
        counts[i] = n;
    }

    /** Generates numbers from 0 to 99, the same for the i-th contender in every language. */
    static IntSupplier percentages(int i) {
        long[] x = {i + 1};
        return () -> {
            x[0] = (x[0] * 1103515245L + 12345) & 0x7fffffffL;
            return (int) (x[0] >> 16) % 100;
        };
    }

    void lockOnce(int i, Contender c) throws Exception {
        c.exclusive.acquire();
        counts[i]++;
        if (granted.incrementAndGet() == untimed) {
            timedFrom = System.nanoTime();
        }
        c.exclusive.release();
    }

    void tryLoop(int i, Contender c) throws Exception {
        long n = 0;
        long won = 0;
        started.await();
        while (System.nanoTime() - deadline < 0) {
            n++;
            if (c.exclusive.acquire(0, TimeUnit.MILLISECONDS)) {
                won++;
                c.exclusive.release();
            }
        }
        tries.addAndGet(n);
        counts[i] = won;
    }

    /** Runs two threads that pass the lock to each other. */
    void pass() throws Exception {
        int count = plan.number("count");
        long pause = plan.number("millis");
        long[] released = new long[count];
        long[] granted = new long[count];
        // The releasing thread joins the queue again after the n-th grant, when the n-th latch opens.
        List<CountDownLatch> handedOver = new ArrayList<>();
        for (int n = 0; n < count; n++) {
            handedOver.add(new CountDownLatch(1));
        }
        CompletableFuture<Void> done = new CompletableFuture<>();
        Thread[] both = new Thread[2];
        for (int side = 0; side < 2; side++) {
            int own = side;
            both[side] = new Thread(() -> {
                try {
                    InterProcessMutex lock = contenders.get(own).exclusive;
                    if (own == 0) {
                        lock.acquire();
                        firstHolds.countDown();
                    }
                    started.await();
                    // Side 0 releases in hand-overs 0, 2, ..., side 1 in 1, 3, ...
                    for (int n = 0; n < count; n++) {
                        if (n % 2 == own) {
                            Thread.sleep(pause);
                            released[n] = System.nanoTime();
                            lock.release();
                            handedOver.get(n).await();
                        } else {
                            lock.acquire();
                            granted[n] = System.nanoTime();
                            handedOver.get(n).countDown();
                        }
                    }
                } catch (Throwable e) {
                    done.completeExceptionally(e);
                }
            });
            both[side].setDaemon(true);
            both[side].start();
        }
        CompletableFuture.runAsync(() -> {
            try {
                both[0].join();
                both[1].join();
                done.complete(null);
            } catch (InterruptedException e) {
                done.completeExceptionally(e);
            }
        });
        done.get();
        for (int n = 0; n < count; n++) {
            if (granted[n] - released[n] < 0) {
                throw new IllegalStateException("granted before the release");
            }
            latencies.add(granted[n] - released[n]);
            counts[n % 2]++;
        }
    }

    String measure() throws Exception {
        timedFrom = System.nanoTime();
        deadline = timedFrom + plan.number("millis") * 1_000_000L;
        started.countDown();
        if (kind.equals("drain")) {
            holder.exclusive.release();
        }
        for (Thread t : threads) {
            t.join();
        }
        double seconds = (System.nanoTime() - timedFrom) / 1e9;
        if (held) {
            holder.exclusive.release();
        }
        synchronized (errors) {
            if (!errors.isEmpty()) {
                throw new IllegalStateException(String.join("; ", errors));
            }
        }
        List<Long> list = new ArrayList<>();
        for (long n : counts) {
            list.add(n);
        }
        return "{\"seconds\":" + seconds + ",\"counts\":" + list
            + ",\"tries\":" + tries + ",\"latencies\":" + latencies + ",\"allocs\":-1}";
    }

    void close() throws Exception {
        List<Thread> closing = new ArrayList<>();
        for (CuratorFramework client : clients) {
            Thread t = new Thread(client::close);
            t.start();
            closing.add(t);
        }
        for (Thread t : closing) {
            t.join();
        }
    }

    public static void main(String[] args) throws Exception {
        boolean readWrite = args[0].equals("rw");
        PrintStream answers = System.out;
        System.setOut(System.err); // keeps prints of libraries out of the answers
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        Bench round = null;
        for (String line; (line = commands.readLine()) != null;) {
            String answer;
            try {
                if (line.startsWith("prepare ")) {
                    round = new Bench(new Plan(line), readWrite);
                    answer = "ready";
                } else if (line.equals("go")) {
                    answer = "report " + round.measure();
                } else if (line.equals("end")) {
                    if (round != null) {
                        round.close();
                    }
                    round = null;
                    answer = "ended";
                } else {
                    answer = "error unknown command " + line;
                }
            } catch (Throwable e) {
                answer = "error " + e.toString().replace('\n', ' ');
            }
            answers.println(answer);
            answers.flush();
        }
        System.exit(0);
    }
}
