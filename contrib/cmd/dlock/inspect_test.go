package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/command"
)

// run executes the dlock command in this process, and returns its exit status
// and output.
func run(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = command.Run(t.Context(), args, &out, &errs)
	return status, out.String(), errs.String()
}

// unchanged hides the machine's dlock configuration from the test.
func unchanged(t *testing.T) {
	for _, name := range []string{"DLOCK_DRIVER", "DLOCK_DSN", "DLOCK_CONFIG", "DLOCK_REQUIRE"} {
		t.Setenv(name, "")
	}
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
}

// While two clients contend for a lock, "queue" must list both of them, and
// "release" must take the lock from its holder, who must learn of the loss.
func TestQueueLsAndReleaseOnEveryStore(t *testing.T) {
	unchanged(t)
	for _, driver := range dlock.Drivers() {
		if driver == "mem" {
			continue // its store exists only within a process
		}
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			dsn := stores[driver](t)
			const name = "stock/order-1234567890"
			open := func(host string) *dlock.Client {
				c, err := dlock.Open(driver, dsn, dlock.WithHostname(host))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close() })
				return c
			}
			tool := func(args ...string) string {
				t.Helper()
				status, out, errs := run(t, append(args, "-driver", driver, "-dsn", dsn)...)
				if status != 0 {
					t.Fatalf("%v: status %d: %s", args, status, errs)
				}
				return out
			}
			lock, err := open("web1").RWMutex(name).Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			next := make(chan *dlock.Lock, 1)
			other := open("web2").RWMutex(name)
			go func() {
				l, _ := other.RLock(t.Context())
				next <- l
			}()

			var queue struct {
				Contenders []struct {
					State, Mode, Node, Host, Program, Session string
					Token                                     int64
					PID                                       int
					For                                       float64 `json:"for_seconds"`
					Left                                      float64 `json:"session_left_seconds"`
				}
			}
			for deadline := time.Now().Add(time.Minute); len(queue.Contenders) < 2; {
				if time.Now().After(deadline) {
					t.Fatal("the waiter is not in the queue")
				}
				out := tool("queue", "-json", name)
				if err := json.Unmarshal([]byte(out), &queue); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			first, second := queue.Contenders[0], queue.Contenders[1]
			if first.State != "holds" || first.Mode != "exclusive" || first.Node != lock.Node() || first.Token != lock.Token() ||
				first.Host != "web1" || first.PID == 0 || first.Program == "" || first.Session == "" || first.For < 0 || first.For > 3600 {
				t.Errorf("holder: %+v", first)
			}
			if second.State != "waits" || second.Mode != "shared" || second.Host != "web2" || second.Session == first.Session {
				t.Errorf("waiter: %+v", second)
			}
			if first.Left < 0 || first.Left > 10 || (first.Left == 0) != (driver == "zk") {
				t.Errorf("the session of the holder has %v s left", first.Left)
			}
			shown := tool("queue", name)
			if lines := strings.Split(shown, "\n"); len(lines) != 4 || len(lines[1]) > 100 || !slices.Equal(strings.Fields(lines[1])[:3], []string{"holds", "exclusive", "web1"}) {
				t.Errorf("%s", shown)
			}
			t.Log("\n" + shown)
			if out := tool("ls"); out != name+"\n" {
				t.Errorf("ls: %s", out)
			}
			if out := tool("ls", "stock/order"); out != "" {
				t.Errorf("ls of a prefix that ends within a segment: %s", out)
			}

			if out := tool("release", "-yes", name, lock.Node()); !strings.HasSuffix(out, "\nremoved\n") {
				t.Errorf("release: %s", out)
			}
			got := <-next
			select {
			case <-lock.Lost():
			case <-time.After(time.Minute):
				t.Error("the holder has not learned that its lock was released")
			}
			if got.Err() != nil || got.Token() <= lock.Token() {
				t.Errorf("the next holder: %v, %v", got, got.Err())
			}
			status, _, errs := run(t, "release", "-yes", name, lock.Node(), "-driver", driver, "-dsn", dsn)
			if status != 1 || !strings.Contains(errs, "not removed") {
				t.Errorf("release of a node that is gone: status %d: %s", status, errs)
			}
			if err := got.Unlock(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The error must name the address, whether the address refuses connections or
// accepts them and never answers.
func TestAStoreThatDoesNotAnswerIsNamedWithoutItsPassword(t *testing.T) {
	unchanged(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	for _, address := range []string{"127.0.0.1:1", silent.Addr().String()} {
		for driver, format := range map[string]string{
			"redis": "redis://alice:geheim@%s", "etcd": "etcd://alice:geheim@%s", "zk": "zk://alice:geheim@%s",
			"postgres": "postgres://alice:geheim@%s/db", "mysql": "alice:geheim@tcp(%s)/db",
		} {
			t.Run(driver+"/"+address, func(t *testing.T) {
				t.Parallel()
				dsn := fmt.Sprintf(format, address)
				for _, args := range [][]string{{"queue", "q"}, {"ls"}, {"release", "-yes", "q", "web1-W-0000000001"}} {
					status, out, errs := run(t, append(args, "-timeout", "500ms", "-driver", driver, "-dsn", dsn)...)
					if status != 1 || out != "" || !strings.Contains(errs, address) || strings.Contains(errs, "geheim") {
						t.Errorf("%v: status %d: %s%s", args, status, out, errs)
					}
				}
			})
		}
	}
}
