package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
)

// A worker's process and the run exchange JSON. The run sends the settings
// first, then answers each message with an order.

// childArgument makes "dlock demo" the process of a worker.
const childArgument = "child-process"

type order struct {
	Reply reply
	Stop  bool // the run was stopped; Reply is unset
}

// child is the process of a worker, as seen by the run.
type child struct {
	cmd    *exec.Cmd
	out    io.Reader
	killed bool // whether the fault has killed it

	mu     sync.Mutex
	orders *json.Encoder // guarded by mu
}

func (r *run) beginProcess(n int) (work func() error, err error) {
	s := *r.settings
	s.Child = n
	closeProxy := func() {}
	if n == 1 && s.Fault == faultCut {
		p, err := s.connectThroughProxy()
		if err != nil {
			return nil, err
		}
		r.hit, closeProxy = func() func() { p.open.Lock(); return p.open.Unlock }, p.close
	}
	c, err := startChild(r.ctx, s)
	if err != nil {
		closeProxy()
		return nil, err
	}
	process := c.cmd.Process
	r.mu.Lock()
	r.print(r.worker(n)+"  ", "starts", fmt.Sprintf("as process %d", process.Pid))
	r.mu.Unlock()
	switch {
	case n == 1 && s.Fault == faultPause:
		r.Paused = process.Pid
		r.hit = func() func() {
			pauseProcess(process)
			return func() { continueProcess(process) }
		}
	case n == 1 && s.Fault == faultKill:
		r.hit = func() func() {
			c.killed = true
			_ = process.Kill() // fails only if the process has exited
			return func() {}
		}
	}
	return func() error {
		defer closeProxy()
		return c.follow(r)
	}, nil
}

// startChild starts a child process. Its settings go through a pipe, because
// any user of the machine can see arguments.
func startChild(ctx context.Context, s settings) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, program, "demo", childArgument)}
	c.cmd.Cancel = func() error {
		c.send(order{Stop: true})
		return os.ErrProcessDone // makes Wait report the child's own exit
	}
	c.cmd.WaitDelay = 30 * time.Second // how long the child may take to stop
	c.cmd.Stderr = os.Stderr           // used only if the child panics
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if c.out, err = c.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	c.orders = json.NewEncoder(in)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	c.send(s)
	return c, nil
}

// send sends a JSON value to the child. It ignores errors, because an error
// means that the child has exited, and c.follow reports that.
func (c *child) send(line any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.orders.Encode(line)
}

// follow answers the child's messages until it exits.
func (c *child) follow(r *run) error {
	messages := json.NewDecoder(c.out)
	for {
		var m message
		if messages.Decode(&m) != nil {
			break
		}
		c.send(order{Reply: r.answer(m)})
	}
	if err := c.cmd.Wait(); !c.killed {
		return err
	}
	return nil
}

// parent is a child process's connection to its parent.
type parent struct {
	paused  int // see settings.Paused
	mu      sync.Mutex
	out     *json.Encoder // guarded by mu
	replies chan reply
}

func runChild(ctx context.Context, in io.Reader, out io.Writer) int {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s := new(settings)
	orders := json.NewDecoder(in)
	if orders.Decode(s) != nil {
		return statusBad
	}
	p := &parent{paused: s.Paused, out: json.NewEncoder(out), replies: make(chan reply, 1)}
	go p.listen(orders, stop)
	w := newWorker(s, s.Child, p.ask)
	client, err := dlock.Open(s.Driver, s.DSN, w.options()...)
	if err == nil {
		err = w.run(ctx, client)
	}
	if err != nil {
		w.tell(askFail, err.Error())
		return statusBad
	}
	return statusOK
}

// listen receives the parent's orders, and ends this process if the parent dies.
func (p *parent) listen(orders *json.Decoder, stop func()) {
	for {
		var o order
		if orders.Decode(&o) != nil {
			p.exit()
		}
		if o.Stop {
			stop()
		} else {
			p.replies <- o.Reply
		}
	}
}

func (p *parent) ask(m message) reply {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out.Encode(m) != nil {
		p.exit()
	}
	return <-p.replies
}

// exit ends this process after the parent has died, and wakes a paused child so
// that it ends, too.
func (p *parent) exit() {
	if paused, err := os.FindProcess(p.paused); err == nil && p.paused != 0 {
		continueProcess(paused)
	}
	os.Exit(statusBad)
}
