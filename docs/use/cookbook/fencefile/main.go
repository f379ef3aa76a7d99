//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

// The program fencefile replaces a file, unless a later holder has done so.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"syscall"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/memdriver"
)

func main() {
	client, err := dlock.Open("mem", "") // for processes: contrib/sqldriver/sqlite
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	err = client.RWMutex("prices").WithLock(context.Background(), func(ctx context.Context, lock *dlock.Lock) error {
		return write("prices.json", lock.Token(), []byte("{}\n"))
	})
	if err != nil {
		log.Fatal(err)
	}
}

var errStale = errors.New("stale token: a later holder of the lock has written")

// write replaces the file. The kernel's lock on path.lock makes the comparison
// with the token in path.token and both renames one step.
func write(path string, token int64, data []byte) error {
	guard, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer guard.Close() // ends the kernel's lock
	if err := syscall.Flock(int(guard.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	var greatest int64
	text, err := os.ReadFile(path + ".token")
	if err == nil {
		_, err = fmt.Sscan(string(text), &greatest)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil // the first write
	}
	if err != nil {
		return fmt.Errorf("token of %s: %w", path, err)
	}
	if token < greatest {
		return fmt.Errorf("%s: %w", path, errStale)
	}
	// Write the token first: after a crash between the two, a rightful write
	// may be refused, but a late write never passes.
	if err := replace(path+".token", fmt.Appendln(nil, token)); err != nil {
		return err
	}
	return replace(path, data)
}

// replace writes a file atomically: a reader sees the old or the new content.
func replace(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails once the file is renamed
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
