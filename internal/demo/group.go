package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// endWithin is how long a child process may take to end after it was told to. If it
// takes longer, it is killed.
const endWithin = 30 * time.Second

// group are the child processes of a run, seen from their parent. The children
// run the workers. The parent prints, keeps the attempts, kills one child, and
// judges.
//
// All times of a run come from the parent's clock: a child asks the parent for the
// time. So the parent can compare the holds of different processes.
type group struct {
	log      *journal
	temp     string // the directory with the counter's file, or empty if the user named a file
	children []*child
	stopping <-chan struct{} // closed when all children have to end
	begun    chan struct{}   // closed when all workers of all children have a session

	mu        sync.Mutex
	connected int     // how many children have a session for each of their workers
	failure   error   // why the first child that failed did so
	unclosed  []error // of clients that the children could not close
	death     *death  // nil until a child is killed
}

// child is one child process.
type child struct {
	group  *group
	number int // from 1
	args   []string
	victim bool // the child is killed while it holds the lock
	cmd    *exec.Cmd
	ended  chan struct{} // closed when the process has ended
}

// death is the end of the child that was killed.
type death struct {
	child  *child
	worker string        // the worker that held the lock
	at     time.Duration // just before the kill
}

func (c *child) name() string { return fmt.Sprintf("process %d", c.number) }

// runProcesses runs the demo with several processes.
func runProcesses(ctx context.Context, s *settings, stdout, stderr io.Writer) int {
	client, err := s.open(s.host, nil) // does no I/O, and checks the data source name
	if err != nil {
		return printError(stderr, statusUsage, s.hide(err))
	}
	_ = client.Close()
	g := newGroup(newJournal(stdout))
	private := s.counterFile == ""
	if private {
		dir, err := os.MkdirTemp("", "dlock-demo-")
		if err != nil {
			return printError(stderr, statusBad, err)
		}
		defer os.RemoveAll(dir)
		g.temp, s.counterFile = dir, filepath.Join(dir, "counter")
	}
	count, err := openCounter(s.counterFile)
	if err != nil {
		return printError(stderr, statusBad, s.hide(err))
	}
	defer count.close()

	g.share(s)
	writeIntroduction(stdout, s)
	err = g.run(ctx)
	switch {
	case ctx.Err() != nil && !g.hasBegun():
		return printError(stderr, statusBad, errInterrupted)
	case err != nil:
		return printError(stderr, statusBad, s.hide(err))
	}
	v := conclude(ctx, s, stdout, count, !private, g.log.attempts, g.unclosed)
	g.report(v)
	v.write(stdout, s)
	return v.status()
}

func newGroup(log *journal) *group { return &group{log: log, begun: make(chan struct{})} }

// share shares the workers out among the children.
func (g *group) share(s *settings) {
	for i := range s.processes {
		workers := s.workers / s.processes
		if i < s.workers%s.processes {
			workers++
		}
		c := &child{group: g, number: i + 1, victim: i+1 == s.victim(), ended: make(chan struct{})}
		c.args = slices.Concat(s.given, []string{
			"-processes=1",
			fmt.Sprintf("-workers=%d", workers),
			"-host=" + s.processHost(c.number),
			fmt.Sprintf("-seed=%d", s.seed+uint64(i)),
			"-counter=" + s.counterFile,
		})
		g.children = append(g.children, c)
	}
}

// run starts the children and waits until all of them have ended. It returns why a
// child failed. If ctx ends or a child fails, run stops the other children.
func (g *group) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g.stopping = ctx.Done()
	var processes, services sync.WaitGroup
	for _, c := range g.children {
		if err := c.start(ctx, &services); err != nil {
			g.fail(fmt.Errorf("%s did not start: %w", c.name(), err))
			stop()
			break
		}
		g.log.say(c.name(), "starts", fmt.Sprintf("with the id %d", c.cmd.Process.Pid))
		processes.Go(func() {
			if err := c.wait(); err != nil {
				g.fail(err)
				stop()
			}
		})
	}
	processes.Wait()
	stop() // ends the calls of children that are still in progress
	services.Wait()
	return g.failure
}

func (g *group) hasBegun() bool {
	select {
	case <-g.begun:
		return true
	default:
		return false
	}
}

// fail keeps the first failure. The others follow from it.
func (g *group) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.failure == nil {
		g.failure = err
	}
}

// start starts the process. The process makes its calls over its standard input
// and output, so that neither its arguments nor its environment hold the data
// source name that the parent got.
func (c *child) start(ctx context.Context, services *sync.WaitGroup) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	c.cmd = exec.CommandContext(ctx, program, "demo", childArgument)
	c.cmd.Cancel = func() error { return os.ErrProcessDone } // the call Stop ends the process
	c.cmd.WaitDelay = endWithin
	c.cmd.Stderr = &head{limit: 4096}
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	server := rpc.NewServer()
	if err := server.RegisterName(serviceName, service{c}); err != nil {
		return err
	}
	if err := c.cmd.Start(); err != nil {
		return err
	}
	services.Go(func() { server.ServeConn(pipes{out, in}) })
	return nil
}

// wait waits until the process has ended. It returns an error if the process has
// failed, unless the parent has killed it.
func (c *child) wait() error {
	err := c.cmd.Wait()
	close(c.ended)
	if err == nil || c.killed() {
		return nil
	}
	if said := strings.TrimSpace(string(c.cmd.Stderr.(*head).kept)); said != "" {
		err = errors.New(said)
	}
	return fmt.Errorf("%s: %w", c.name(), err)
}

func (c *child) killed() bool {
	c.group.mu.Lock()
	defer c.group.mu.Unlock()
	return c.group.death != nil && c.group.death.child == c
}

// kill kills the process, in which the worker of the attempt holds the lock, and
// returns when the process has ended.
func (c *child) kill(t *attempt) {
	g := c.group
	t.outcome = killed
	g.log.finished(t)
	g.mu.Lock()
	g.death = &death{c, t.worker, g.log.say(c.name(), "KILLED", fmt.Sprintf("while %s held the lock", t.label()))}
	g.mu.Unlock()
	_ = c.cmd.Process.Kill() // fails only if the process has ended
	<-c.ended
}

// victim returns the child that is to be killed.
func (g *group) victim() *child {
	return g.children[slices.IndexFunc(g.children, func(c *child) bool { return c.victim })]
}

// head keeps the first bytes that are written to it.
type head struct {
	kept  []byte
	limit int
}

func (h *head) Write(p []byte) (int, error) {
	h.kept = append(h.kept, p[:min(len(p), h.limit-len(h.kept))]...)
	return len(p), nil
}

// pipes are the connection to a process that reads from one pipe and writes to
// another.
type pipes struct {
	io.Reader
	io.WriteCloser
}
