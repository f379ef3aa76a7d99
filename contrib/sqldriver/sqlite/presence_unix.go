//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package sqlite

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// kernelLocks says that the kernel releases the file locks of a dead process.
const kernelLocks = true

// presence shows that a session is alive, by locks that end with its process.
type presence struct {
	dir   string
	id    string
	own   *os.File // locked exclusively
	alive *os.File // locked by all live sessions
	wake  *os.File // a named pipe; nil if not created
}

// enter creates the files of a new session. The caller must then call attend.
func enter(dir string, dirMode fs.FileMode) (*presence, error) {
	fileMode := dirMode & 0o666
	if err := os.Mkdir(dir, dirMode); err == nil {
		// Chmod restores what the umask removed, but keeps the setgid bit for
		// shared directories.
		if info, err := os.Stat(dir); err == nil {
			_ = os.Chmod(dir, dirMode|info.Mode()&fs.ModeSetgid)
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	p := &presence{dir: dir, id: rand.Text()}
	var err error
	if p.own, err = openFile(p.path(p.id), os.O_CREATE|os.O_EXCL, fileMode); err != nil {
		return nil, err
	}
	if err = flock(p.own, syscall.LOCK_EX); err == nil {
		p.alive, err = openFile(p.path("alive"), os.O_CREATE, fileMode)
	}
	if err != nil {
		p.leave()
		return nil, fmt.Errorf("lock a file in %s: %w", dir, err)
	}
	if syscall.Mkfifo(p.path(p.id+".wake"), uint32(fileMode)) == nil {
		// O_RDWR makes this process a writer. Without any writer, reads would
		// not block.
		p.wake, _ = os.OpenFile(p.path(p.id+".wake"), os.O_RDWR|syscall.O_NONBLOCK, 0)
	}
	return p, nil
}

func openFile(path string, flag int, mode fs.FileMode) (*os.File, error) {
	f, err := os.OpenFile(path, flag|os.O_RDWR, mode)
	if err == nil && flag&os.O_CREATE != 0 {
		_ = f.Chmod(mode) // undoes the umask; fails for another user's file
	}
	return f, err
}

func (p *presence) path(name string) string { return filepath.Join(p.dir, name) }

// attend locks the file "alive" to show that the session is alive.
//
// If first is true, no other session is alive, and others block in attend until
// this one calls share. If first is false, some session has been alive ever
// since attend last returned true. There was no power cut in that time, so no
// commit has been lost.
func (p *presence) attend(ctx context.Context) (first bool, err error) {
	how, err := p.lockAlive(ctx, syscall.LOCK_EX, syscall.LOCK_SH)
	return how == syscall.LOCK_EX, err
}

// share downgrades the exclusive lock of a first session to a shared one.
func (p *presence) share(ctx context.Context) error {
	_, err := p.lockAlive(ctx, syscall.LOCK_SH)
	return err
}

// lockAlive locks p.alive in the first of the given ways that succeeds.
func (p *presence) lockAlive(ctx context.Context, ways ...int) (how int, err error) {
	for try := 0; ; try++ {
		for _, how := range ways {
			if err := flock(p.alive, how); !errors.Is(err, syscall.EWOULDBLOCK) {
				return how, err
			}
		}
		if err := pause(ctx, try, longestPause); err != nil {
			return 0, err
		}
	}
}

// dead reports whether another session's process has died. A missing file
// proves nothing.
func (p *presence) dead(id string) bool {
	if !plainName(id) {
		return false
	}
	f, err := os.OpenFile(p.path(id), os.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return flock(f, syscall.LOCK_SH) == nil
}

// missing reports whether another session has no file, because it ended or
// somebody removed it.
func (p *presence) missing(id string) bool {
	_, err := os.Lstat(p.path(id))
	return plainName(id) && errors.Is(err, fs.ErrNotExist)
}

// plainName reports whether a session ID, perhaps another program's, is safe as
// a file name.
func plainName(id string) bool {
	return id != "" && id != "alive" && filepath.Base(id) == id && id[0] != '.'
}

func (p *presence) forget(id string) {
	if plainName(id) {
		_ = os.Remove(p.path(id))
		_ = os.Remove(p.path(id + ".wake"))
	}
}

// remains returns the IDs of dead sessions that left files. It skips young
// files, which may not be locked yet.
func (p *presence) remains() (ids map[string]bool) {
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		return nil
	}
	ids = make(map[string]bool)
	for _, e := range entries {
		id := strings.TrimSuffix(e.Name(), ".wake")
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		if p.missing(id) || p.dead(id) {
			ids[id] = true
		}
	}
	return ids
}

// notify wakes another session by writing to its named pipe. It never blocks.
func (p *presence) notify(id string) {
	if !plainName(id) {
		return
	}
	// Writing to an os.File would block while the pipe is full.
	fd, err := syscall.Open(p.path(id+".wake"), syscall.O_WRONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	_, _ = syscall.Write(fd, []byte{1})
	_ = syscall.Close(fd)
}

func (p *presence) hears() bool { return p.wake != nil }

// hear calls wake when another process has called notify for this session.
func (p *presence) hear(wake func()) {
	if p.wake == nil {
		return
	}
	var b [64]byte
	for {
		if _, err := p.wake.Read(b[:]); err != nil {
			return
		}
		wake()
	}
}

// silence makes hear return.
func (p *presence) silence() {
	if p.wake != nil {
		_ = p.wake.Close()
	}
}

func (p *presence) leave() {
	p.silence()
	p.forget(p.id)
	p.unlock()
}

// unlock releases the session's file locks, as if its process had died.
func (p *presence) unlock() {
	for _, f := range []*os.File{p.own, p.alive} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// flock locks a file without waiting. It returns EWOULDBLOCK on conflict.
func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// mayWrite does not open path, because closing the file would drop SQLite's
// locks.
func mayWrite(path string) error {
	const write = 2 // W_OK in unistd.h
	if err := syscall.Access(path, write); err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}
