package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/mysqltest"
	"github.com/dlock-go/dlock/internal/natstest"
	"github.com/dlock-go/dlock/internal/pgtest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/internal/testenv"
)

func TestLsAndQueueLeaveNothing(t *testing.T) {
	unchanged(t)
	for driver, open := range map[string]func(t *testing.T) (dsn string, content func() string){
		"etcd": func(t *testing.T) (string, func() string) {
			server := etcdtest.Start(t)
			return "etcd://" + server.Addr(), func() string {
				return server.Etcdctl("get", "--from-key", "", "--keys-only") + server.Etcdctl("lease", "list")
			}
		},
		"mysql": func(t *testing.T) (string, func() string) {
			server := mysqltest.Start(t)
			database := server.Database()
			return server.DSN(database), func() string {
				return server.SQL(t, database, "SHOW TABLES; SHOW PROCEDURE STATUS WHERE Db = DATABASE()")
			}
		},
		"nats": func(t *testing.T) (string, func() string) {
			server := natstest.Start(t)
			return "nats://" + server.Addr(), func() string {
				streams, err := server.Streams()
				require.NoError(t, err)
				return fmt.Sprint(streams)
			}
		},
		"postgres": func(t *testing.T) (string, func() string) {
			server := pgtest.Start(t)
			return server.DSN(), func() string {
				return server.SQL(t, "SELECT nspname FROM pg_namespace WHERE nspname LIKE '%dlock%'")
			}
		},
		"redis": func(t *testing.T) (string, func() string) {
			server := redistest.Start(t)
			return "redis://" + server.Addr(), func() string { return fmt.Sprint(server.Do("KEYS", "*")) }
		},
		"sqlite": func(t *testing.T) (string, func() string) {
			dir := t.TempDir()
			return dir + "/locks.db", func() string {
				files, _ := os.ReadDir(dir)
				return fmt.Sprint(files)
			}
		},
	} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			dsn, content := open(t)
			before := content()
			for _, args := range [][]string{{"ls"}, {"queue", "-json", "stock"}} {
				status, out, errs := run(t, append(args, "-timeout", "9s", "-driver", driver, "-dsn", dsn)...) // too short to begin a session
				assert.Zero(t, status, "%v: %s", args, errs)
				assert.NotContains(t, out, "node")
			}
			assert.Equal(t, before, content())
		})
	}
}

// Even a store that can grant no lock must show its locks.
func TestLsAndQueueNeedNoPrimaryAndNoRoom(t *testing.T) {
	unchanged(t)
	for name, open := range map[string]func(t *testing.T) (dsn string, changed func() (dsn string)){
		"redis replica": func(t *testing.T) (string, func() string) {
			server, replica := redistest.Start(t), redistest.Start(t)
			return "redis://" + server.Addr() + "?empty_is_new=true", func() string {
				host, port, _ := strings.Cut(server.Addr(), ":")
				replica.Do("REPLICAOF", host, port)
				return "redis://" + replica.Addr()
			}
		},
		"redis full": func(t *testing.T) (string, func() string) {
			server := redistest.Start(t)
			return "redis://" + server.Addr() + "?empty_is_new=true", func() string {
				server.Do("CONFIG", "SET", "maxmemory", "1")
				return "redis://" + server.Addr()
			}
		},
		"postgres standby": func(t *testing.T) (string, func() string) {
			server := pgtest.Start(t)
			return server.DSN("empty_is_new=true"), func() string { return server.Standby(t).DSN() }
		},
		"mysql replica": func(t *testing.T) (string, func() string) {
			server := mysqltest.Start(t, mysqltest.WithConfig("log_bin=binlog"))
			database := server.Database()
			return server.DSN(database, "empty_is_new=true"), func() string { return server.Replica(t).DSN(database) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			driver, _, _ := strings.Cut(name, " ")
			dsn, change := open(t)
			client, err := dlock.Open(driver, dsn, dlock.WithHostname("web1"))
			require.NoError(t, err)
			t.Cleanup(func() { _ = client.Close() })
			lock, err := client.RWMutex("stock").Lock(t.Context())
			require.NoError(t, err)
			dsn = change()
			for _, looks := range []struct {
				args []string
				want string
			}{{[]string{"ls"}, "stock\n"}, {[]string{"queue", "stock"}, lock.Node()}} {
				require.Eventually(t, func() bool {
					status, out, _ := run(t, append(looks.args, "-driver", driver, "-dsn", dsn)...)
					return status == 0 && strings.Contains(out, looks.want)
				}, time.Minute, 20*time.Millisecond, "%v", looks.args)
			}
			status, _, _ := run(t, "release", "-yes", "-timeout", "1s", "stock", lock.Node(), "-driver", driver, "-dsn", dsn)
			assert.NotZero(t, status, "released")
		})
	}
}

// The queue command removes nothing, so a dead holder's node may remain.
func TestQueueDoesNotShowADeadHolder(t *testing.T) {
	unchanged(t)
	const params = "empty_is_new=true&session_timeout=1s"
	for driver, open := range map[string]func(t *testing.T) (addr string, dsnAt func(addr string) string){
		"redis": func(t *testing.T) (string, func(string) string) {
			return redistest.Start(t).Addr(), func(addr string) string { return "redis://" + addr + "?" + params }
		},
		"postgres": func(t *testing.T) (string, func(string) string) {
			server := pgtest.Start(t)
			return server.Addr(), func(addr string) string { return server.DSNAt(addr, params) }
		},
		"mysql": func(t *testing.T) (string, func(string) string) {
			server := mysqltest.Start(t)
			database := server.Database()
			return server.Addr(), func(addr string) string { return server.DSNAt(addr, database, params) }
		},
	} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			addr, dsnAt := open(t)
			proxy := testenv.NewProxy(t, addr, nil)
			client, err := dlock.Open(driver, dsnAt(proxy.Addr()))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Close() })
			if _, err := client.RWMutex("stock").Lock(t.Context()); err != nil {
				t.Fatal(err)
			}
			proxy.Cut()
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
				_, out, errs := run(t, "queue", "-json", "stock", "-driver", driver, "-dsn", dsnAt(addr))
				if strings.Contains(out, `"contenders":[]`) {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("%s%s", out, errs)
				}
			}
		})
	}
}
