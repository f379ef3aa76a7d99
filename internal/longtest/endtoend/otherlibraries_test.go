package endtoend_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/zktest"
)

type foreignLibrary interface {
	// take acquires a lock in the background. The channel receives nil or an
	// error.
	take(kind, path string) (id int, outcome <-chan error)
	release(id int)
}

// programBound is generous, because Java starts slowly on a busy machine.
const programBound = 2 * time.Minute

func (w *fixture) soonAfter(outcome <-chan error) error {
	w.Helper()
	select {
	case err := <-outcome:
		return err
	case <-time.After(programBound):
		require.FailNow(w, "the other library does not answer")
		return nil
	}
}

// program is a child process in testdata that takes another library's locks.
type program struct {
	w       *fixture
	in      io.Writer
	last    int
	answers [100]chan error // by lock ID, to take and then release
}

func curator(w *fixture) foreignLibrary {
	cmd, err := zktest.Curator("testdata/Locks.java", w.server.Addr())
	zktest.RequirePeer(w, err)
	return w.start(cmd)
}

func kazoo(w *fixture) foreignLibrary {
	cmd, err := zktest.Kazoo("testdata/locks.py", w.server.Addr())
	zktest.RequirePeer(w, err)
	return w.start(cmd)
}

func (w *fixture) start(cmd *exec.Cmd) *program {
	w.Helper()
	in, err := cmd.StdinPipe()
	require.NoError(w, err)
	out, err := cmd.StdoutPipe()
	require.NoError(w, err)
	var complaints sharedBuffer
	cmd.Stderr = &complaints
	require.NoError(w, cmd.Start())
	p := &program{w: w, in: in}
	for id := range p.answers {
		p.answers[id] = make(chan error, 2)
	}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		p.listen(out)
	}()
	w.Cleanup(func() {
		in.Close() // the program exits on end of input
		<-finished
		if err := cmd.Wait(); err != nil || w.Failed() {
			w.Logf("%s: %v: %s", cmd.Path, err, complaints.String())
		}
	})
	return p
}

func (p *program) listen(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var verb string
		var id int
		if _, err := fmt.Sscan(lines.Text(), &verb, &id); err != nil || id < 0 || id >= len(p.answers) {
			continue
		}
		var err error
		if verb == "failed" {
			err = errors.New(lines.Text())
		}
		p.answers[id] <- err
	}
	for _, answers := range p.answers {
		select {
		case answers <- errors.New("the program has ended"):
		default:
		}
	}
}

func (p *program) take(kind, path string) (id int, outcome <-chan error) {
	p.w.Helper()
	p.last++
	require.Less(p.w, p.last, len(p.answers))
	_, err := fmt.Fprintf(p.in, "take %d %s %s\n", p.last, kind, path)
	require.NoError(p.w, err)
	return p.last, p.answers[p.last]
}

// count makes the program take the lock n times to increment or read a number.
func (p *program) count(kind, path string, n int, file string) (outcome <-chan error) {
	p.w.Helper()
	p.last++
	_, err := fmt.Fprintf(p.in, "count %d %s %s %d %s\n", p.last, kind, path, n, file)
	require.NoError(p.w, err)
	return p.answers[p.last]
}

func (p *program) release(id int) {
	p.w.Helper()
	_, err := fmt.Fprintf(p.in, "release %d\n", id)
	require.NoError(p.w, err)
	require.NoError(p.w, p.w.soonAfter(p.answers[id]))
}

type goLocks struct {
	w     *fixture
	conn  *zk.Conn
	locks []*zk.Lock
}

func goZooKeeper(w *fixture) foreignLibrary {
	return &goLocks{w: w, conn: zktest.Dial(w, quiet, w.server.Addr())}
}

func (p *goLocks) take(_, path string) (id int, outcome <-chan error) {
	l := zk.NewLock(p.conn, path, zk.WorldACL(zk.PermAll))
	p.locks = append(p.locks, l)
	done := make(chan error, 1)
	go func() { done <- l.Lock() }()
	return len(p.locks) - 1, done
}

func (p *goLocks) release(id int) {
	p.w.Helper()
	require.NoError(p.w, p.locks[id].Unlock())
}
