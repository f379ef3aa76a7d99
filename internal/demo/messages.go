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

// childArgument is the only argument of "dlock demo" in a child process.
const childArgument = "child-process"

// A child process and its parent send each other JSON values, one a line. The
// first is the parent's job. The parent answers each message with an order
// whose Do is empty.

type job struct {
	Args   []string // of "dlock demo" in the child
	Victim bool     // the child is killed while it holds the lock
}

// message is a line from a child. An empty one asks for the time.
type message struct {
	Event   *event   `json:",omitempty"` // to print
	Attempt *attempt `json:",omitempty"` // has ended
	Kill    bool     `json:",omitempty"` // kill this process: the attempt holds the lock
	Ready   bool     `json:",omitempty"` // each worker has a session
	Failed  string   `json:",omitempty"` // why the child ends
	Closing string   `json:",omitempty"` // the error of a client that was not closed
}

type event struct{ Who, Verb, What string }

// order is a line from the parent.
type order struct {
	Do string        `json:",omitempty"`
	At time.Duration `json:",omitempty"` // of the event, or the present
}

const (
	doBegin = "begin" // all workers of all children have sessions
	doStop  = "stop"
	doGoOn  = "go on" // the victim is dead
)

// parent is a child's connection to its parent, and its workers' reporter. All
// times come from the parent's clock, so that holds of different processes can be
// compared.
type parent struct {
	mu      sync.Mutex // guards out, and orders the messages and answers
	out     *json.Encoder
	answers chan time.Duration
	begun   chan struct{} // closed by doBegin
	goOn    chan struct{} // closed by doGoOn
}

// runChild is the main function of a child process.
func runChild(ctx context.Context, in io.Reader, out io.Writer) int {
	signal.Ignore(syscall.SIGPIPE) // the next message notices that the parent has ended
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var j job
	orders := json.NewDecoder(in)
	if orders.Decode(&j) != nil {
		return statusBad
	}
	p := &parent{out: json.NewEncoder(out), answers: make(chan time.Duration, 1), begun: make(chan struct{}), goOn: make(chan struct{})}
	go p.obey(orders, stop)
	s, err := parse(j.Args)
	if err == nil {
		err = p.work(ctx, s, j.Victim)
	}
	if err != nil {
		p.send(message{Failed: secret.Hide(err.Error(), j.Args)})
		return statusBad
	}
	return statusOK
}

// obey ends the process when the parent has ended.
func (p *parent) obey(orders *json.Decoder, stop func()) {
	for {
		var o order
		if orders.Decode(&o) != nil {
			os.Exit(statusBad)
		}
		switch o.Do {
		case "":
			p.answers <- o.At
		case doBegin:
			close(p.begun)
		case doGoOn:
			close(p.goOn)
		case doStop:
			stop()
		}
	}
}

func (p *parent) work(ctx context.Context, s *settings, victim bool) error {
	count, err := openCounter(s.counterFile)
	if err != nil {
		return err
	}
	defer count.close()
	closing, err := runWorkers(ctx, s, s.open, count, p, p.lastStep(victim))
	for _, err := range closing {
		p.send(message{Closing: err.Error()})
	}
	return err
}

// lastStep returns what the child's first worker does when all others are done.
// The victim's is killed while it holds the lock. Those of the other children take
// the lock after that.
func (p *parent) lastStep(victim bool) intent {
	if victim {
		return intent{mode: dlock.Exclusive, holding: func(t *attempt) { p.send(message{Attempt: t, Kill: true}) }}
	}
	return intent{mode: dlock.Exclusive, await: p.goOn}
}

// send returns the time of the answer. It ends the process if the parent has ended.
func (p *parent) send(m message) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out.Encode(m) != nil {
		os.Exit(statusBad)
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

func (p *parent) now() time.Duration { return p.send(message{}) }

func (p *parent) say(who, verb, what string) time.Duration {
	return p.send(message{Event: &event{who, verb, what}})
}

func (p *parent) finished(t *attempt) { p.send(message{Attempt: t}) }

func processName(number int) string { return fmt.Sprintf("process %d", number) }
