package faults

import (
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Stage says how far a request has come. A plan may inject a fault at each
// stage.
type Stage int

const (
	// StageRequest means that the request is on its way to the store.
	StageRequest Stage = iota
	// StageReply means that the store's reply is on its way back. A Close does
	// not reach this stage.
	StageReply
	// StageNews means that an event of the watch armed by the request is on its
	// way to the caller. The event is Released or the end of the watch.
	StageNews
)

func (s Stage) String() string {
	switch s {
	case StageReply:
		return "reply"
	case StageNews:
		return "news"
	}
	return "request"
}

// Request tells a [Plan] about a request, its reply, or an event of the watch
// that the request has armed.
type Request struct {
	Op    Op
	Stage Stage

	// Session is the number of the Connect that made the session, from 1. Failed
	// Connects are numbered, too, unless their ctx had already ended.
	Session int
	// Nth numbers the session's requests that have the same Op and Queue, from 1.
	// It is always 1 for a Connect. A reply and the watch events have the Nth of
	// their request.
	Nth int

	// Queue is the queue, or the prefix passed to Walk.
	Queue string
	// Prefix is the prefix passed to Create or Replace.
	Prefix string
	// Place is the node that the request concerns. It is unknown for a
	// Create before StageReply, and has only a name for a Read.
	Place driver.Place
	// Cause is the cause passed to Delete. At StageNews it is Released if the
	// watch has sent Released, and Changed if it has ended.
	Cause driver.Cause
	// Err is the error returned by the store. It is nil before StageReply.
	Err error
}

// String describes the request, for example
//
//	delete "stock/42" "web1-W-0000000007", reply
func (r Request) String() string {
	s, prefix := r.Op.String(), r.Prefix
	if r.Op == OpCreate && r.Place.Name != "" {
		prefix = "" // the name contains the prefix
	}
	for _, part := range []string{r.Queue, r.Place.Name, prefix} {
		if part != "" {
			s += fmt.Sprintf(" %q", part)
		}
	}
	switch {
	case r.Stage == StageNews:
		s += ", " + r.Cause.String()
	case r.Stage != StageRequest:
		s += ", " + r.Stage.String()
	}
	return s
}

func (r Request) failed(err error) error { return fmt.Errorf("faults: %s: %w", r, err) }

// refused reports whether a driver rejects the request without sending it,
// because a name is invalid.
func (r Request) refused() bool {
	switch r.Op {
	case OpWalk:
		return r.Queue != "" && driver.CheckQueue(r.Queue) != nil
	case OpCreate, OpReplace:
		return driver.CheckQueue(r.Queue) != nil || driver.CheckPrefix(r.Prefix) != nil
	}
	return driver.CheckQueue(r.Queue) != nil
}

func (r Request) repeatable() bool {
	return r.Op == OpDelete || r.Op == OpReplace || r.Op == OpCleanUp
}

func (r Request) arms() bool {
	return r.Op == OpCreate || r.Op == OpWatch || r.Op == OpWatchQueue
}

// Fault describes what goes wrong with a request at one stage. The zero Fault
// does nothing. Fields that do not apply to the request or the stage are
// ignored.
type Fault struct {
	// Delay is how long to hold the request, the reply or the event. A Close is
	// held for at most two seconds, and no other field applies to it.
	Delay time.Duration

	// Lose makes the call fail with Err:
	//
	//   - At StageRequest, the store never receives the request.
	//   - At StageReply, the store has carried out the request.
	//   - At StageNews, the watch ends instead of sending Released. Lose does
	//     nothing to the end of a watch.
	//
	// For a request that is never answered, let the Plan block until its ctx ends.
	Lose bool
	// Err is the error of a call that lost its request or reply. If Err is
	// nil, the call's error matches driver.ErrUnavailable. Err must not
	// match driver.ErrGone, driver.ErrSessionEnded or
	// errors.ErrUnsupported, which would tell the caller something untrue
	// about the node, the session or the method.
	Err error

	// Repeat sends a request twice in succession, and drops the second
	// reply. It applies to OpDelete, OpReplace and OpCleanUp at
	// StageRequest.
	Repeat bool

	// EndWatchAfter is the time from the reply to an early end of the watch that
	// the request has armed. Zero means no early end. It applies to OpCreate,
	// OpWatch and OpWatchQueue at StageRequest.
	EndWatchAfter time.Duration

	// DropAhead and DropWatch remove the nodes ahead and the watch from the
	// result of a Create, as if the store had failed after making the node.
	// They apply to OpCreate at StageReply.
	DropAhead, DropWatch bool

	// EndSession ends the session, and the request with it. Done is closed and
	// Err returns an error before the nodes are removed. It does not apply at
	// StageNews.
	EndSession bool
}
