package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/command"
	"github.com/dlock-go/dlock/internal/testenv"
)

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
				require.NoError(t, err)
				t.Cleanup(func() { _ = c.Close() })
				return c
			}
			tool := func(args ...string) string {
				t.Helper()
				status, out, errs := run(t, append(args, "-driver", driver, "-dsn", dsn)...)
				require.Zero(t, status, "%v: %s", args, errs)
				return out
			}
			lock, err := open("web1").RWMutex(name).Lock(t.Context())
			require.NoError(t, err)
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
				require.True(t, time.Now().Before(deadline), "the waiter is not in the queue")
				require.NoError(t, json.Unmarshal([]byte(tool("queue", "-json", name)), &queue))
			}
			first, second := queue.Contenders[0], queue.Contenders[1]
			assert.Equal(t, []any{"holds", "exclusive", lock.Node(), lock.Token(), "web1"}, []any{first.State, first.Mode, first.Node, first.Token, first.Host})
			assert.NotZero(t, first.PID)
			assert.NotEmpty(t, first.Program)
			assert.NotEmpty(t, first.Session)
			assert.True(t, first.For >= 0 && first.For <= 3600, first.For)
			assert.Equal(t, []string{"waits", "shared", "web2"}, []string{second.State, second.Mode, second.Host})
			assert.NotEqual(t, first.Session, second.Session)
			assert.True(t, first.Left >= 0 && first.Left <= 10 && (first.Left == 0) == (driver == "zk" || driver == "nats"), first.Left)
			lines := strings.Split(tool("queue", name), "\n")
			require.Len(t, lines, 4)
			assert.Equal(t, []string{"holds", "exclusive", "web1"}, strings.Fields(lines[1])[:3])
			assert.Equal(t, name+"\n", tool("ls"))
			assert.Empty(t, tool("ls", "stock/order"), "a prefix that ends within a segment")

			assert.Regexp(t, "\nremoved\n$", tool("release", "-yes", name, lock.Node()))
			got := <-next
			testenv.Receive(t, lock.Lost(), "the holder learns that its lock was released")
			require.NoError(t, got.Err())
			assert.Greater(t, got.Token(), lock.Token())
			status, _, errs := run(t, "release", "-yes", name, lock.Node(), "-driver", driver, "-dsn", dsn)
			assert.Equal(t, 1, status)
			assert.Contains(t, errs, "not removed", "a node that is gone")
			require.NoError(t, got.Unlock())
		})
	}
}

// The error must name an address that refuses connections or never answers.
func TestAStoreThatDoesNotAnswerIsNamedWithoutItsPassword(t *testing.T) {
	unchanged(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	for _, address := range []string{"127.0.0.1:1", silent.Addr().String()} {
		for driver, format := range map[string]string{
			"redis": "redis://alice:geheim@%s", "etcd": "etcd://alice:geheim@%s", "nats": "nats://alice:geheim@%s", "zk": "zk://alice:geheim@%s",
			"postgres": "postgres://alice:geheim@%s/db", "mysql": "alice:geheim@tcp(%s)/db",
		} {
			t.Run(driver+"/"+address, func(t *testing.T) {
				t.Parallel()
				dsn := fmt.Sprintf(format, address)
				for _, args := range [][]string{{"queue", "q"}, {"ls"}, {"release", "-yes", "q", "web1-W-0000000001"}} {
					status, out, errs := run(t, append(args, "-timeout", "500ms", "-driver", driver, "-dsn", dsn)...)
					assert.Equal(t, 1, status, args)
					assert.Empty(t, out)
					assert.Contains(t, errs, address)
					assert.NotContains(t, errs, "geheim")
				}
			})
		}
	}
}
