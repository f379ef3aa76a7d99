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
	"syscall"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

type state struct {
	Last     int64           // last sequence number, also the last token
	Version  int64           // rises with each change of a queue
	Sessions map[string]bool // live sessions
	Queues   map[string]session.Queue
}

func (st *state) store(name string, q session.Queue) {
	st.Version++
	if st.Queues[name] = q; len(q.Nodes) == 0 && q.Setter == 0 {
		delete(st.Queues, name)
	}
}

func (st *state) keep(name string, match func(session.Row) bool) {
	if q := st.Queues[name]; q.Keep(match) {
		st.store(name, q)
	}
}

// prune drops sessions past their deadlines or without files, and nodes without
// sessions.
func (st *state) prune(root *os.Root) {
	maps.DeleteFunc(st.Sessions, func(id string, _ bool) bool {
		end, err := root.Stat(id)
		return errors.Is(err, fs.ErrNotExist) || err == nil && !time.Now().Before(end.ModTime()) && root.Remove(id) == nil
	})
	for queue := range st.Queues {
		st.keep(queue, func(n session.Row) bool { return n.Owner == "" || st.Sessions[n.Owner] })
	}
}

// store is a directory with a state file, a lock file and session files. A
// session file's modification time is the session's deadline.
type store struct{ dir string }

func (d store) path(name string) string { return filepath.Join(d.dir, name) }

// read calls f without the lock, because the state file is replaced as a whole.
func (d store) read(ctx context.Context, f func(*state) error) error {
	root, err := os.OpenRoot(d.dir)
	if err != nil {
		return markUnavailable(err)
	}
	defer root.Close()
	_, st, err := load(root)
	if err = cmp.Or(ctx.Err(), err); err != nil {
		return err
	}
	return f(st)
}

// update lets f change the state and stores it, excluding other processes. Any
// error but errUnknownOutcome means that nothing has changed.
func (d store) update(ctx context.Context, f func(*state) error) error {
	err := d.tryUpdate(ctx, f)
	if err != nil && !errors.Is(err, errUnknownOutcome) {
		err = session.Refused(err)
	}
	return err
}

func (d store) tryUpdate(ctx context.Context, f func(*state) error) error {
	root, err := os.OpenRoot(d.dir)
	if err != nil {
		return markUnavailable(err)
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

// lock polls, because a call that waits in the kernel would outlast ctx.
func lock(ctx context.Context, root *os.Root) (unlock func() error, err error) {
	f, err := root.OpenFile("lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, markUnavailable(err)
	}
	for ctx.Err() == nil {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f.Close, nil // Close unlocks
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(markUnavailable(err), f.Close())
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
		return nil, nil, markUnavailable(err)
	default:
		err = json.Unmarshal(b, st)
	}
	if st.Sessions == nil { // new, or null in the file
		st.Sessions = make(map[string]bool)
	}
	if st.Queues == nil {
		st.Queues = make(map[string]session.Queue)
	}
	return b, st, err
}

func save(root *os.Root, b []byte) error {
	if err := writeFile(root, "state.next", b); err != nil {
		return markUnavailable(err)
	}
	if err := errors.Join(root.Rename("state.next", "state.json"), syncDir(root)); err != nil {
		return fmt.Errorf("%w: %w", errUnknownOutcome, err)
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

var (
	errExpired        = fmt.Errorf("%w: the store has dropped it", driver.ErrSessionEnded)
	errUnknownOutcome = fmt.Errorf("%w: the disk failed, and may or may not have stored the change", driver.ErrUnavailable)
)

var chtimes = os.Chtimes // a test replaces it

// markUnavailable marks errors that may pass by themselves, but not a missing
// permission.
func markUnavailable(err error) error {
	if err == nil || errors.Is(err, fs.ErrPermission) {
		return err
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}
