//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/testenv"
)

type locker func() (unlock func() error, err error)

// rivals are the locks to compare. Like processes, lockers share only the files
// in dir.
var rivals = []struct {
	name string
	make func(b testing.TB, dir string) locker
}{
	{"dlock", dlockLocker}, {"flock", flockLocker}, {"table", tableLocker},
}

func dlockLocker(b testing.TB, dir string) locker {
	m := open(b, filepath.Join(dir, "locks.db")).RWMutex("stock/42")
	return func() (func() error, error) {
		lock, err := m.Lock(context.Background())
		if err != nil {
			return nil, err
		}
		return lock.Unlock, nil
	}
}

// flockLocker waits in the kernel. It has no tokens, no order and no
// cancellation.
func flockLocker(b testing.TB, dir string) locker {
	f, err := os.OpenFile(filepath.Join(dir, "flock"), os.O_CREATE|os.O_RDWR, 0o600)
	require.NoError(b, err)
	b.Cleanup(func() { _ = f.Close() })
	return func() (func() error, error) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		return func() error { return syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }, err
	}
}

// tableLocker retries an insert every millisecond. The row of a dead process
// would stay forever.
func tableLocker(b testing.TB, dir string) locker {
	db, err := sql.Open("sqlite", fileURI(filepath.Join(dir, "table.db"))+
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(normal)&_txlock=immediate")
	require.NoError(b, err)
	b.Cleanup(func() { _ = db.Close() })
	_, err = db.Exec("CREATE TABLE IF NOT EXISTS held (name TEXT PRIMARY KEY)")
	require.NoError(b, err)
	return func() (func() error, error) {
		for {
			r, err := db.Exec("INSERT INTO held VALUES ('stock/42') ON CONFLICT DO NOTHING")
			if err != nil {
				return nil, err
			}
			if n, err := r.RowsAffected(); n == 1 || err != nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		return func() error {
			_, err := db.Exec("DELETE FROM held WHERE name = 'stock/42'")
			return err
		}, nil
	}
}

func BenchmarkFreeLock(b *testing.B) {
	dir := b.TempDir() // on a disk
	var ways []testenv.Way
	for _, r := range rivals {
		ways = append(ways, testenv.Way{Name: r.name, Contender: func() func() error {
			lock := r.make(b, dir)
			return func() error {
				unlock, err := lock()
				if err == nil {
					err = unlock()
				}
				return err
			}
		}})
	}
	testenv.Free(b, ways)
}

// contend is the main function of each process of BenchmarkEightProcesses.
func contend(rival, dir string) {
	for _, r := range rivals {
		if r.name != rival {
			continue
		}
		lock := r.make(new(fakeTB), dir)
		var longest time.Duration
		n := 0
		for end := time.Now().Add(time.Second); time.Now().Before(end); n++ {
			start := time.Now()
			unlock, err := lock()
			longest = max(longest, time.Since(start))
			if err == nil {
				err = unlock()
			}
			if err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
		}
		fmt.Println(n, longest.Microseconds())
	}
	os.Exit(0)
}

// fakeTB stands in for testing.TB in a child process, which never cleans up.
type fakeTB struct{ testing.TB }

func (*fakeTB) Name() string                   { return "process" }
func (*fakeTB) Cleanup(func())                 {}
func (*fakeTB) Helper()                        {}
func (*fakeTB) FailNow()                       { os.Exit(1) }
func (*fakeTB) Errorf(format string, a ...any) { fmt.Printf(format, a...) }

func BenchmarkEightProcesses(b *testing.B) {
	for b.Loop() {
		for _, r := range rivals {
			dir := b.TempDir()
			r.make(b, dir) // makes the tables
			var all []*process
			for range 8 {
				all = append(all, start(b, "contend", dir, rivalVariable+"="+r.name))
			}
			var shares, waits []int
			for _, p := range all {
				var n, wait int
				_, err := fmt.Sscan(p.line(b), &n, &wait)
				require.NoError(b, err)
				shares, waits = append(shares, n), append(waits, wait)
				p.kill()
			}
			sum := 0
			for _, n := range shares {
				sum += n
			}
			b.ReportMetric(float64(sum), r.name+"/s")
			b.ReportMetric(float64(slices.Min(shares)), r.name+"-least")
			b.ReportMetric(float64(slices.Max(shares)), r.name+"-most")
			b.ReportMetric(float64(slices.Max(waits))/1e3, r.name+"-longest-ms")
		}
	}
}
