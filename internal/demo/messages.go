package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/secret"
)

// childArgument is the argument of "dlock demo" that makes it a child process
// of another demo.
const childArgument = "child-process"

// A child and its parent exchange JSON values, one per line. The parent first
// sends the settings, and then answers each message with the time.

// message is sent by a child to its parent. An empty message asks for the time.
type message struct {
	Event    *event    `json:",omitempty"` // to print
	Attempt  *attempt  `json:",omitempty"` // an attempt that has ended
	Question *question `json:",omitempty"` // a question to the scene
	Kill     bool      `json:",omitempty"` // the child asks to be killed now, while it holds the lock
	Ready    bool      `json:",omitempty"` // all workers have sessions
	Failed   string    `json:",omitempty"` // why the child gives up
}

type event struct{ Who, Verb, What string }

// order is sent by the parent to a child, in reply to a message or on its own.
type order struct {
	Do     string        `json:",omitempty"`
	At     time.Duration `json:",omitempty"` // time of the event, or the current time
	Answer answer        `json:",omitzero"`
}

const (
	doBegin = "begin" // all workers of all children have sessions
	doStop  = "stop"
	doGoOn  = "go on" // the process to be killed is dead, or the holder has begun its work
)

// parent is the reporter in a child process: it forwards everything to the
// parent process. All times come from the parent's clock, so that holds in
// different processes are comparable.
type parent struct {
	mu      sync.Mutex // serializes messages; held until the reply arrives
	out     *json.Encoder
	answers chan order
	begun   chan struct{} // closed by doBegin
	goOn    chan struct{} // closed by doGoOn
	paused  *os.Process   // the process that a fault has paused, to be continued if the parent dies; or nil
}

// runChild is the main function of a child process.
func runChild(ctx context.Context, in io.Reader, out io.Writer) int {
	signal.Ignore(syscall.SIGPIPE) // so that sending a message fails instead of killing the process
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s := new(settings)
	orders := json.NewDecoder(in)
	if orders.Decode(s) != nil {
		return statusBad
	}
	p := &parent{out: json.NewEncoder(out), answers: make(chan order, 1), begun: make(chan struct{}), goOn: make(chan struct{})}
	if s.Paused != 0 {
		p.paused, _ = os.FindProcess(s.Paused)
	}
	go p.obey(orders, stop)
	var err error
	last := intent{mode: dlock.Exclusive, await: p.goOn}
	if s.Victim {
		last = intent{mode: dlock.Exclusive, holding: func(t *attempt) { p.send(message{Attempt: t, Kill: true}) }}
	}
	if s.Fault != "" {
		err = p.play(ctx, s)
	} else if count, failure := openCounter(s.CounterFile); failure == nil {
		defer count.close()
		err = runWorkers(ctx, s, s.open, count, p, last)
	} else {
		err = failure
	}
	if err != nil {
		p.send(message{Failed: secret.Hide(err.Error(), []string{s.DSN})})
		return statusBad
	}
	return statusOK
}

// exit ends the child process, because the parent has died.
func (p *parent) exit() {
	if p.paused != nil {
		continueProcess(p.paused)
	}
	os.Exit(statusBad)
}

// obey carries out the parent's orders. It exits the process when the parent
// has died.
func (p *parent) obey(orders *json.Decoder, stop func()) {
	goOn := sync.OnceFunc(func() { close(p.goOn) })
	for {
		var o order
		if orders.Decode(&o) != nil {
			p.exit()
		}
		switch o.Do {
		case "":
			p.answers <- o
		case doBegin:
			close(p.begun)
		case doGoOn:
			goOn()
		case doStop:
			stop()
		}
	}
}

// send sends a message and returns the parent's reply. It exits the process if
// the parent has died.
func (p *parent) send(m message) order {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out.Encode(m) != nil {
		p.exit()
	}
	return <-p.answers
}

func (p *parent) begin(ctx context.Context) bool {
	p.send(message{Ready: true})
	select {
	case <-p.begun:
		return true
	case <-ctx.Done():
		return false
	}
}

func (p *parent) now() time.Duration { return p.send(message{}).At }

func (p *parent) say(who, verb, what string) time.Duration {
	return p.send(message{Event: &event{who, verb, what}}).At
}

func (p *parent) finished(t *attempt) { p.send(message{Attempt: t}) }

func (p *parent) ask(_ context.Context, q question) answer {
	return p.send(message{Question: &q}).Answer
}

// play runs this child's worker in the scene.
func (p *parent) play(ctx context.Context, s *settings) error {
	next := p.goOn
	if s.Holder {
		next = nil
	}
	w, err := s.cast(s.Host, s.open, p, next)
	if err != nil {
		return err
	}
	all := workers{w}
	defer all.close()
	return all.play(ctx, s, p)
}

func processName(number int) string { return fmt.Sprintf("process %d", number) }
