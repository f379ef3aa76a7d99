package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
)

// endWithin is how long a child may take to end after it was told to. After that
// it is killed.
const endWithin = 30 * time.Second

// group runs the workers in child processes. The parent prints, keeps the
// attempts, kills one child, and judges.
type group struct {
	log      *journal
	forget   func() // removes a private counter's file, once all children have opened it
	children []*child

	mu      sync.Mutex
	ready   int     // children whose workers have sessions
	failure error   // of the first child that failed; the other failures follow from it
	closing []error // of clients that the children could not close
	dead    *child  // nil until a child is killed
	victim  string  // the worker that held the lock
	died    time.Duration
}

type child struct {
	*group
	number int // from 1
	job    job
	cmd    *exec.Cmd

	sending sync.Mutex
	orders  *json.Encoder // guarded by sending
}

func newGroup(s *settings, log *journal, forget func()) *group {
	g := &group{log: log, forget: forget}
	for i := range s.processes {
		workers := s.workers / s.processes
		if i < s.workers%s.processes {
			workers++
		}
		g.children = append(g.children, &child{group: g, number: i + 1, job: job{
			Victim: i+1 == s.victim(),
			Args: slices.Concat(s.given, []string{
				"-processes=1",
				fmt.Sprintf("-workers=%d", workers),
				"-host=" + s.processHost(i+1),
				fmt.Sprintf("-seed=%d", s.seed+uint64(i)),
				"-counter=" + s.counterFile,
			}),
		}})
	}
	return g
}

// run returns when all children have ended. If ctx ends or a child fails, run
// stops the other children.
func (g *group) run(ctx context.Context) error {
	stopping, stop := context.WithCancel(ctx)
	defer stop()
	var processes sync.WaitGroup
	for _, c := range g.children {
		out, err := c.start(stopping)
		if err != nil {
			g.fail(fmt.Errorf("%s did not start: %w", processName(c.number), err))
			stop()
			break
		}
		g.log.say(processName(c.number), "starts", fmt.Sprintf("with the id %d", c.cmd.Process.Pid))
		processes.Go(func() {
			if err := c.follow(stopping, out); err != nil {
				g.fail(fmt.Errorf("%s: %w", processName(c.number), err))
				stop()
			}
		})
	}
	processes.Wait()
	if ctx.Err() != nil && g.ready < len(g.children) {
		return errInterrupted
	}
	return g.failure
}

func (g *group) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.failure == nil {
		g.failure = err
	}
}

// start starts the process. The job goes through a pipe, so that neither the
// arguments nor the environment of the process show the data source name.
func (c *child) start(ctx context.Context) (out io.Reader, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c.cmd = exec.CommandContext(ctx, program, "demo", childArgument)
	c.cmd.Cancel = func() error {
		c.order(order{Do: doStop})
		return os.ErrProcessDone // a child that ends in good order has not failed
	}
	c.cmd.WaitDelay = endWithin
	c.cmd.Stderr = os.Stderr // for a panic only
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err = c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.orders = json.NewEncoder(in)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	c.order(c.job)
	return out, nil
}

// order sends a line to the child. An error means that the child has ended, which
// follow reports.
func (c *child) order(line any) {
	c.sending.Lock()
	defer c.sending.Unlock()
	_ = c.orders.Encode(line)
}

// follow answers the child until it has ended. It returns an error if the child
// has failed, unless the parent has killed it.
func (c *child) follow(ctx context.Context, out io.Reader) error {
	lines := json.NewDecoder(out)
	var failure error
	for {
		var m message
		if lines.Decode(&m) != nil {
			break
		}
		if m.Failed != "" {
			failure = errors.New(m.Failed)
		}
		c.order(order{At: c.take(ctx, m)})
	}
	err := c.cmd.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead == c {
		c.tellAll(doGoOn)
		return nil
	}
	if failure != nil {
		return failure
	}
	return err
}

// take does what the message says and returns the time of it.
func (c *child) take(ctx context.Context, m message) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.Closing != "" {
		c.closing = append(c.closing, errors.New(m.Closing))
	}
	if m.Ready {
		if c.ready++; c.ready == len(c.children) {
			c.forget()
			c.log.begin(ctx)
			c.tellAll(doBegin)
		}
	}
	if m.Event != nil {
		return c.log.say(m.Event.Who, m.Event.Verb, m.Event.What)
	}
	if t := m.Attempt; t != nil && (!m.Kill || ctx.Err() == nil) {
		t.Process = c.number
		if m.Kill {
			t.Outcome = killed
			c.dead, c.victim = c, t.Worker
			c.died = c.log.say(processName(c.number), "KILLED", fmt.Sprintf("while %s held the lock", t.label()))
			_ = c.cmd.Process.Kill() // fails only if the process has ended
		}
		c.log.finished(t)
	}
	return c.log.now()
}

func (g *group) tellAll(do string) {
	for _, c := range g.children {
		c.order(order{Do: do})
	}
}

// report adds to the verdict what became of each process.
func (g *group) report(v *verdict) {
	held := byGrant(v.attempts)
	for _, c := range g.children {
		own := slices.DeleteFunc(slices.Clone(held), func(t *attempt) bool { return t.Process != c.number })
		end := "."
		if g.dead == c {
			end = fmt.Sprintf("; killed while %s held the lock.", g.victim)
		}
		v.note("Process %d: %d shared grants, %d exclusive%s", c.number, countMode(own, dlock.Shared), countMode(own, dlock.Exclusive), end)
	}
	if len(held) > 0 {
		first, last := held[0], held[len(held)-1]
		v.note("Tokens: from %d, %s, to %d, %s.", first.Token, first.Worker, last.Token, last.Worker)
	}
	next := slices.IndexFunc(held, func(t *attempt) bool { return t.Granted > g.died })
	switch {
	case g.dead != nil && next >= 0:
		v.note("The lock stayed with the dead process for %s. Then its session had ended, and %s got the lock.",
			seconds(held[next].Granted-g.died), held[next].Worker)
	case v.interrupted:
	case g.dead == nil:
		v.errs = append(v.errs, errors.New("no process was killed, because its worker did not get the lock, or lost it"))
	default:
		v.errs = append(v.errs, fmt.Errorf("no worker got the lock after %s was killed; is -timeout shorter than the session timeout of the store?", processName(g.dead.number)))
	}
}
