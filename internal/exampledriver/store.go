//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package exampledriver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// state is everything that the store knows.
type state struct {
	Last     int64             // the last sequence given out, which is the last token too
	Version  int64             // counts changes of the membership of queues
	Sessions map[string]bool   // those that the store keeps
	Queues   map[string][]node // the oldest node first
}

type node struct {
	driver.Place
	Owner string // a session, or empty for a node of another program
	Data  string // for people who look into the file
}

// remove removes the nodes that match, and returns how many there were.
func (st *state) remove(match func(queue string, n node) bool) (removed int) {
	for queue, nodes := range st.Queues {
		left := slices.DeleteFunc(slices.Clone(nodes), func(n node) bool { return match(queue, n) })
		removed += len(nodes) - len(left)
		if st.Queues[queue] = left; len(left) == 0 {
			delete(st.Queues, queue)
		}
	}
	if removed > 0 {
		st.Version++
	}
	return removed
}

// prune drops the sessions whose time is up or whose file is gone, and the nodes
// of sessions that are not there.
func (st *state) prune(root *os.Root) {
	maps.DeleteFunc(st.Sessions, func(id string, _ bool) bool {
		end, err := root.Stat(id)
		return errors.Is(err, fs.ErrNotExist) || err == nil && !time.Now().Before(end.ModTime()) && root.Remove(id) == nil
	})
	st.remove(func(_ string, n node) bool { return n.Owner != "" && !st.Sessions[n.Owner] })
}

// store is a directory. The state is in one file of it, which is replaced as a
// whole. A process that changes the state holds the lock on another file. Each
// session has a file, too, whose time says when the store drops the session.
type store struct{ dir string }

func (d store) path(name string) string { return filepath.Join(d.dir, name) }

// read calls f with the present state. It needs no lock, because the file is
// replaced as a whole.
func (d store) read(ctx context.Context, f func(*state) error) error {
	root, err := os.OpenRoot(d.dir)
	if err != nil {
		return marked(err)
	}
	defer root.Close()
	_, st, err := load(root)
	if err = cmp.Or(ctx.Err(), err); err != nil {
		return err
	}
	return f(st)
}

// update calls f with the present state while no other process can change it, and
// stores the state as f leaves it. If f fails, nothing changes. Only after an
// error that matches errDoubt is it unknown whether the change was made. All of
// it happens in one directory, even if another one takes its path meanwhile.
func (d store) update(ctx context.Context, f func(*state) error) error {
	root, err := os.OpenRoot(d.dir)
	if err != nil {
		return marked(err)
	}
	defer root.Close()
	unlock, err := lock(ctx, root)
	if err != nil {
		return err
	}
	defer unlock()
	before, st, err := load(root)
	if err != nil {
		return err
	}
	st.prune(root)
	if err := f(st); err != nil {
		return err
	}
	after, err := json.Marshal(st)
	if err != nil || bytes.Equal(before, after) {
		return err
	}
	return save(root, after)
}

// lock takes a lock that the kernel gives back if this process dies. It asks again
// and again rather than wait in the kernel, where no ctx could reach it.
func lock(ctx context.Context, root *os.Root) (unlock func() error, err error) {
	f, err := root.OpenFile("lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, marked(err)
	}
	for ctx.Err() == nil {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f.Close, nil // which gives the lock back
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(marked(err), f.Close())
		}
		time.Sleep(50*time.Microsecond + rand.N(200*time.Microsecond))
	}
	return nil, errors.Join(ctx.Err(), f.Close())
}

func load(root *os.Root) ([]byte, *state, error) {
	st := new(state)
	b, err := root.ReadFile("state.json")
	switch {
	case errors.Is(err, fs.ErrNotExist): // a new store
		err = nil
	case err != nil:
		return nil, nil, marked(err)
	default:
		err = json.Unmarshal(b, st)
	}
	if st.Sessions == nil { // also if another program wrote null
		st.Sessions = make(map[string]bool)
	}
	if st.Queues == nil {
		st.Queues = make(map[string][]node)
	}
	return b, st, err
}

func save(root *os.Root, b []byte) error {
	if err := writeFile(root, "state.next", b); err != nil {
		return marked(err)
	}
	if err := errors.Join(rename(root, "state.next", "state.json"), syncDir(root)); err != nil {
		return fmt.Errorf("%w: %w", errDoubt, err)
	}
	return nil
}

func writeFile(root *os.Root, name string, b []byte) error {
	f, err := root.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close())
}

func syncDir(root *os.Root) error {
	f, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

var errDoubt = errors.New("the disk failed, and may or may not have stored the change")

// Tests replace these to play a disk that fails or is slow.
var (
	rename  = (*os.Root).Rename
	chtimes = os.Chtimes
)

// marked marks an error that may pass by itself. That of a full disk may, that of a
// missing permission will not.
func marked(err error) error {
	if err == nil || errors.Is(err, fs.ErrPermission) {
		return err
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}
