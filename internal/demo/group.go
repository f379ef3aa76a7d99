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
)

// endWithin is how long a child process may take to exit before it is killed.
const endWithin = 30 * time.Second

// group runs the workers in child processes. The parent prints all events,
// kills one child on purpose, and judges the run.
type group struct {
	log      reporter
	scene    *scene // nil unless the run has a fault, see scene
	opened   func() // called when all children have opened the counter's files
	children []*child

	mu      sync.Mutex
	ready   int    // number of children whose workers all have sessions
	failure error  // error of the first child that failed; later errors follow from it
	dead    *child // the child that was killed on purpose, if any
	victim  string // worker that held the lock in the killed child
	died    time.Duration
}

type child struct {
	*group
	number   int // from 1
	settings settings
	cmd      *exec.Cmd

	sending sync.Mutex
	orders  *json.Encoder // guarded by sending
}

// victim returns the number of the child process to kill.
func (s *settings) victim() int { return 1 + int(s.Seed%uint64(s.Processes)) }

// run starts all children and waits until they exit. If one fails or ctx ends,
// it stops the others.
func (g *group) run(ctx context.Context, s *settings) error {
	for i := range s.Processes {
		own := *s
		own.Workers = s.Workers / s.Processes
		if i < s.Workers%s.Processes {
			own.Workers++
		}
		own.Host = fmt.Sprintf("%s-p%d", s.Host, i+1)
		own.Seed += uint64(i)
		own.Victim = g.scene == nil && i+1 == s.victim()
		own.Holder = g.scene != nil && i == 0
		g.children = append(g.children, &child{group: g, number: i + 1, settings: own})
	}
	stopping, stop := context.WithCancel(ctx)
	defer stop()
	var processes sync.WaitGroup
	for i, c := range g.children {
		if g.scene != nil && s.Fault == faultPause && i > 0 {
			c.settings.Paused = g.children[0].cmd.Process.Pid
		}
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

// start starts the child process. Its settings go through a pipe, because any
// user of the machine can see arguments.
func (c *child) start(ctx context.Context) (out io.Reader, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c.cmd = exec.CommandContext(ctx, program, "demo", childArgument)
	c.cmd.Cancel = func() error {
		c.send(order{Do: doStop})
		return os.ErrProcessDone // so that Wait reports how the child itself exits
	}
	c.cmd.WaitDelay = endWithin
	c.cmd.Stderr = os.Stderr // the child writes to it only when it panics
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
	c.send(c.settings)
	return out, nil
}

// send sends a JSON value to the child. It ignores errors: they mean that the
// child has exited, which follow reports.
func (c *child) send(line any) {
	c.sending.Lock()
	defer c.sending.Unlock()
	_ = c.orders.Encode(line)
}

// follow answers the child's messages until it exits. It returns an error if
// the child failed and was not killed on purpose.
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
		reply := order{At: c.take(ctx, m)}
		if q := m.Question; q != nil {
			if q.Do == askFault {
				c.tellAll(doGoOn)
			}
			reply.Answer = c.scene.ask(ctx, *q)
		}
		c.send(reply)
	}
	err := c.cmd.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.dead == c:
		c.tellAll(doGoOn)
		return nil
	case failure != nil:
		return failure
	}
	return err
}

func (c *child) take(ctx context.Context, m message) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.Ready {
		if c.ready++; c.ready == len(c.children) {
			c.opened()
			c.log.begin(ctx)
			c.tellAll(doBegin)
		}
	}
	if m.Event != nil {
		return c.log.say(m.Event.Who, m.Event.Verb, m.Event.What)
	}
	if t := m.Attempt; t != nil && (!m.Kill || ctx.Err() == nil) {
		if m.Kill {
			t.Outcome = killed
			c.dead, c.victim = c, t.Worker
			c.died = c.log.say(processName(c.number), "KILLED", fmt.Sprintf("while %s held the lock", t.label()))
			_ = c.cmd.Process.Kill() // fails only if the process has exited
		}
		c.log.finished(t)
		if c.scene != nil {
			c.tellAll(doGoOn) // let the next worker start, even if the holder failed before it began its work
		}
	}
	return c.log.now()
}

func (g *group) tellAll(do string) {
	for _, c := range g.children {
		c.send(order{Do: do})
	}
}

// strike begins the fault of a scene: it pauses or kills the holder's process.
func (g *group) strike() {
	holder := g.children[0]
	if g.scene.fault == faultPause {
		pauseProcess(holder.cmd.Process)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dead = holder
	_ = holder.cmd.Process.Kill() // fails only if the process has exited
}

func (g *group) heal() {
	if g.scene.fault == faultPause {
		continueProcess(g.children[0].cmd.Process)
	}
}

// report adds to the verdict how long the killed process kept the others from
// the lock.
func (g *group) report(v *verdict) {
	next := slices.IndexFunc(v.held, func(t *attempt) bool { return t.Granted > g.died })
	switch {
	case g.dead != nil && next >= 0:
		v.note = fmt.Sprintf("Process %d was killed while %s held the lock.\nThe lock stayed with the dead process for %s. Then its session had ended, and %s got the lock.\n",
			g.dead.number, g.victim, seconds(v.held[next].Granted-g.died), v.held[next].Worker)
	case v.interrupted:
	case g.dead == nil:
		v.errs = append(v.errs, "no process was killed, because its worker did not get the lock, or lost it")
	default:
		v.errs = append(v.errs, fmt.Sprintf("no worker got the lock after %s was killed; is -timeout shorter than the session timeout of the store?", processName(g.dead.number)))
	}
}
