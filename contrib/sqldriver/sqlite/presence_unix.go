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

// kernelLocks says that the kernel unlocks the files of a process that has died.
const kernelLocks = true

// presence is the directory with the files that show which sessions live. Each session
// holds the kernel's lock (flock) on two files: exclusively on a file with its own
// name, and shared on the file "alive".
type presence struct {
	dir   string
	id    string
	own   *os.File
	alive *os.File
	wake  *os.File // a named pipe; nil if the file system has none
}

// enter makes the files of a new session. The session then has to call attend.
func enter(dir string, dirMode fs.FileMode) (*presence, error) {
	fileMode := dirMode & 0o666
	if err := os.Mkdir(dir, dirMode); err == nil {
		// The umask may have removed bits. A setgid bit of the directory above, which
		// gives the files to the group of the users that share them, stays.
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
		// With O_RDWR this process itself holds the pipe open for writing. So a read
		// waits for the next notice, and returns no error, while no other session
		// writes.
		p.wake, _ = os.OpenFile(p.path(p.id+".wake"), os.O_RDWR|syscall.O_NONBLOCK, 0)
	}
	return p, nil
}

func openFile(path string, flag int, mode fs.FileMode) (*os.File, error) {
	f, err := os.OpenFile(path, flag|os.O_RDWR, mode)
	if err == nil && flag&os.O_CREATE != 0 {
		_ = f.Chmod(mode) // the umask may have removed bits; another user's file stays as it is
	}
	return f, err
}

func (p *presence) path(name string) string { return filepath.Join(p.dir, name) }

// attend takes the kernel's lock on the file alive, which shows that the session lives.
//
// If no other session lives, attend takes the lock exclusively, and first is true.
// Other sessions then wait in attend until this session calls share. If another session
// lives, attend takes a shared lock, and first is false. In that case the machine has
// not lost any commit since the last session for which first was true, because a power
// cut would have ended all sessions.
func (p *presence) attend(ctx context.Context) (first bool, err error) {
	for try := 0; ; try++ {
		for _, how := range []int{syscall.LOCK_EX, syscall.LOCK_SH} {
			err := flock(p.alive, how)
			if err == nil || !errors.Is(err, syscall.EWOULDBLOCK) {
				return how == syscall.LOCK_EX, err
			}
		}
		if err := pause(ctx, try, longestPause); err != nil {
			return false, err
		}
	}
}

// share lets other sessions attend.
func (p *presence) share(ctx context.Context) error {
	for try := 0; ; try++ {
		err := flock(p.alive, syscall.LOCK_SH)
		if err == nil || !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		if err := pause(ctx, try, longestPause); err != nil {
			return err
		}
	}
}

// dead reports whether the process of another session has died. If the file of the
// session is missing, dead does not know, and reports false.
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

// plainName reports whether a session's name, which another program may have written,
// names a file in the directory.
func plainName(id string) bool {
	return id != "" && id != "alive" && filepath.Base(id) == id && id[0] != '.'
}

// forget removes the files of a session that the database does not have any more.
func (p *presence) forget(id string) {
	if plainName(id) {
		_ = os.Remove(p.path(id))
		_ = os.Remove(p.path(id + ".wake"))
	}
}

// remains returns the sessions whose files no process locks. It passes over files that
// are younger than a minute, because their sessions may just be locking them.
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
		_, err = os.Lstat(p.path(id))
		if errors.Is(err, fs.ErrNotExist) || p.dead(id) {
			ids[id] = true
		}
	}
	return ids
}

// notify wakes another session, or this one. It never blocks.
func (p *presence) notify(id string) {
	if !plainName(id) {
		return
	}
	// An os.File would wait while the pipe is full.
	fd, err := syscall.Open(p.path(id+".wake"), syscall.O_WRONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	_, _ = syscall.Write(fd, []byte{1})
	_ = syscall.Close(fd)
}

// hear calls wake for each notice that a session sends to this one. It returns after a
// call of silence.
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

// leave removes the files of the session and unlocks them.
func (p *presence) leave() {
	p.silence()
	p.forget(p.id)
	p.unlock()
}

// unlock unlocks the files of the session, as the kernel does when a process dies. It
// may be called more than once.
func (p *presence) unlock() {
	for _, f := range []*os.File{p.own, p.alive} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// flock locks a file without waiting. It returns EWOULDBLOCK if another session holds
// a lock that conflicts.
func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// mayWrite returns an error if this process may not write the file or directory. It
// does not open the file: to close it again would drop SQLite's locks on the file.
func mayWrite(path string) error {
	const write = 2 // W_OK in unistd.h
	if err := syscall.Access(path, write); err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}
