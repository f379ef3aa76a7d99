package demo

import (
	"errors"
	"os"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

// serviceName is the name under which a parent offers its service to a child.
const serviceName = "Parent"

// service has the calls that a child makes to its parent. The form of its methods
// is that of package net/rpc, in which a call has an argument and a reply. A bool
// that has no name means nothing.
type service struct{ child *child }

// Job says what a child has to do.
type Job struct {
	Args   []string // the arguments of "dlock demo" for the child
	Victim bool     // the child is killed while it holds the lock
}

// Event is an event to print.
type Event struct{ Who, Verb, What string }

// Attempt is an attempt in a form that package encoding/gob can send.
type Attempt struct {
	Worker                string
	Mode                  dlock.Mode
	Place                 driver.Place
	Asked, Granted, Ended time.Duration
	Held                  bool
	Token                 int64
	Outcome               int
	Err                   string
	Increments            int
	Value, Counted        int64
	Anomaly               string
}

// Job returns the job of the child.
func (s service) Job(_ bool, reply *Job) error {
	*reply = Job{s.child.args, s.child.victim}
	return nil
}

// Begin says that each worker of the child has a session. Begin returns when this
// is true for all children. The reply is false if the child has to end instead.
func (s service) Begin(_ bool, reply *bool) error {
	g := s.child.group
	g.mu.Lock()
	if g.connected++; g.connected == len(g.children) {
		// All processes have opened the counter's file. If the system does not remove
		// an open file, the end of the run removes it.
		_ = os.RemoveAll(g.temp)
		g.log.begin()
		close(g.begun)
	}
	g.mu.Unlock()
	select {
	case <-g.begun:
		*reply = true
	case <-g.stopping:
	}
	return nil
}

// Stop returns when the child has to end.
func (s service) Stop(_ bool, _ *bool) error {
	<-s.child.group.stopping
	return nil
}

// Now returns the time.
func (s service) Now(_ bool, reply *time.Duration) error {
	*reply = s.child.group.log.now()
	return nil
}

// Say prints an event and returns its time.
func (s service) Say(e Event, reply *time.Duration) error {
	*reply = s.child.group.log.say(e.Who, e.Verb, e.What)
	return nil
}

// Finished keeps an attempt that has ended.
func (s service) Finished(a Attempt, _ *bool) error {
	s.child.group.log.finished(s.attempt(a))
	return nil
}

// NotClosed keeps the error of a client that the child could not close.
func (s service) NotClosed(text string, _ *bool) error {
	g := s.child.group
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unclosed = append(g.unclosed, errors.New(text))
	return nil
}

// Kill kills the child, whose attempt holds the lock. It does nothing if the child
// has to end anyway.
func (s service) Kill(a Attempt, _ *bool) error {
	select {
	case <-s.child.group.stopping:
	default:
		s.child.kill(s.attempt(a))
	}
	return nil
}

// AwaitKill returns when the child that is killed has ended, or when all children
// have to end.
func (s service) AwaitKill(_ bool, _ *bool) error {
	g := s.child.group
	select {
	case <-g.victim().ended:
	case <-g.stopping:
	}
	return nil
}

// wire returns the attempt in the form that a child sends.
func (t *attempt) wire() Attempt {
	a := Attempt{
		Worker: t.worker, Mode: t.mode, Place: t.place,
		Asked: t.asked, Granted: t.granted, Ended: t.ended,
		Held: t.held, Token: t.token, Outcome: int(t.outcome),
		Increments: t.increments, Value: t.last.value, Counted: t.last.increments, Anomaly: t.anomaly,
	}
	if t.err != nil {
		a.Err = t.err.Error()
	}
	return a
}

// attempt returns the attempt that the child has sent.
func (s service) attempt(a Attempt) *attempt {
	return &attempt{
		process: s.child.number, worker: a.Worker, mode: a.Mode, place: a.Place,
		asked: a.Asked, granted: a.Granted, ended: a.Ended,
		held: a.Held, token: a.Token, outcome: outcome(a.Outcome), err: errors.New(a.Err),
		increments: a.Increments, last: reading{a.Value, a.Counted}, anomaly: a.Anomaly,
	}
}
