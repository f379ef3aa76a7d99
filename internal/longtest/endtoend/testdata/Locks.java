import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Takes and releases locks of Curator for a test. The argument is the server's address. Each line of
 * the input is an order: "take ID KIND PATH" or "release ID". A lock that is won is answered with
 * "held ID", one that is released with "released ID", and a failure with "failed ID TEXT". The order
 * "count ID KIND PATH N FILE" takes a lock N times and each time adds 1 to the number in the file, or
 * reads it twice, and is answered with "counted ID". The program ends when its input ends.
 */
public class Locks {
    static final PrintStream answers = System.out;

    static synchronized void say(String line) {
        answers.println(line.replace('\n', ' '));
        answers.flush();
    }

    static InterProcessMutex lock(CuratorFramework client, String kind, String path) {
        switch (kind) {
            case "mutex":
                return new InterProcessMutex(client, path);
            case "read":
                return new InterProcessReadWriteLock(client, path).readLock();
            case "write":
                return new InterProcessReadWriteLock(client, path).writeLock();
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    /** Runs on a thread of its own, because Curator's locks belong to threads. */
    static void hold(CuratorFramework client, String id, String kind, String path, CountDownLatch release) {
        try {
            InterProcessMutex lock = lock(client, kind, path);
            lock.acquire();
            say("held " + id);
            release.await();
            lock.release();
            say("released " + id);
        } catch (Throwable e) {
            say("failed " + id + " " + e);
        }
    }

    static void count(CuratorFramework client, String id, String kind, String path, int n, Path file) {
        try {
            InterProcessMutex lock = lock(client, kind, path);
            for (int i = 0; i < n; i++) {
                lock.acquire();
                try {
                    int number = Integer.parseInt(Files.readString(file));
                    if (!kind.equals("read")) {
                        Files.writeString(file, String.valueOf(number + 1));
                    } else if (Integer.parseInt(Files.readString(file)) != number) {
                        throw new IllegalStateException("the number has changed beside a reader");
                    }
                } finally {
                    lock.release();
                }
            }
            say("counted " + id);
        } catch (Throwable e) {
            say("failed " + id + " " + e);
        }
    }

    static void start(Runnable run) {
        Thread t = new Thread(run);
        t.setDaemon(true);
        t.start();
    }

    public static void main(String[] args) throws Exception {
        System.setOut(System.err); // what libraries print must not come between the answers
        CuratorFramework client =
            CuratorFrameworkFactory.newClient(args[0], 60000, 15000, new ExponentialBackoffRetry(1000, 3));
        client.start();
        if (!client.blockUntilConnected(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no session with ZooKeeper");
        }
        Map<String, CountDownLatch> held = new ConcurrentHashMap<>();
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = orders.readLine()) != null;) {
            String[] words = line.split(" ");
            if (words[0].equals("take")) {
                CountDownLatch release = new CountDownLatch(1);
                held.put(words[1], release);
                start(() -> hold(client, words[1], words[2], words[3], release));
            } else if (words[0].equals("count")) {
                start(() -> count(client, words[1], words[2], words[3], Integer.parseInt(words[4]), Path.of(words[5])));
            } else {
                held.remove(words[1]).countDown();
            }
        }
        client.close();
        System.exit(0);
    }
}
