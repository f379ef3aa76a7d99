package faults

import (
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Stage says how far a request has come.
type Stage int

const (
	// StageRequest means that the request is on its way to the store, and the
	// store has not seen it yet.
	StageRequest Stage = iota
	// StageReply means that the store has answered, and the reply is on its way
	// back. A Close does not reach this stage.
	StageReply
	// StageNews means that the watch which the request armed has sent Released
	// or has ended, and that this news is on its way.
	StageNews
)

// String returns "request", "reply" or "news".
func (s Stage) String() string {
	switch s {
	case StageReply:
		return "reply"
	case StageNews:
		return "news"
	}
	return "request"
}

// Request is a call of a driver on its way to the store or back, as a [Plan]
// sees it.
type Request struct {
	Op    Op
	Stage Stage

	// Session is the number of the session. The first call of Connect gives 1,
	// the next one 2, and so on. A call that fails counts as well, unless its
	// ctx had ended before the call.
	Session int
	// Nth is the number of the request among the requests of the same Op and
	// Queue in its session: 1 for the first one. A request, its reply and the
	// news of its watch have the same Nth. For OpConnect it is always 1.
	Nth int

	// Queue is the queue, or the prefix at which a Walk looks.
	Queue string
	// Prefix is the prefix that a Create or a Replace gives to its node.
	Prefix string
	// Place is the node that the request is about. For a Create it is known at
	// StageReply only. For a Read only its name is known.
	Place driver.Place
	// Cause is the cause that Delete was given. At StageNews it is Released if
	// the watch has sent Released, and Changed if the watch has ended.
	Cause driver.Cause
	// Err is the error that the store has returned. It is nil before StageReply.
	Err error
}

// String returns the request in words, such as
// `delete "stock/42" "web1-W-0000000007", reply`.
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

// refused reports whether a driver refuses the request without asking the
// store.
func (r Request) refused() bool {
	switch r.Op {
	case OpWalk:
		return r.Queue != "" && driver.CheckQueue(r.Queue) != nil
	case OpCreate, OpReplace:
		return driver.CheckQueue(r.Queue) != nil || driver.CheckPrefix(r.Prefix) != nil
	}
	return driver.CheckQueue(r.Queue) != nil
}

// repeatable reports whether Fault.Repeat applies to the request.
func (r Request) repeatable() bool {
	return r.Op == OpDelete || r.Op == OpReplace || r.Op == OpCleanUp
}

// arms reports whether the request may arm a watch.
func (r Request) arms() bool {
	return r.Op == OpCreate || r.Op == OpWatch || r.Op == OpWatchQueue
}

// Fault is the fault of a request at one stage. The zero Fault plays no fault.
// A field that does not apply to the request, or to the stage, is ignored.
type Fault struct {
	// Delay is how long the request, the reply or the news is on its way. A
	// Close is delayed for at most two seconds, and no other field applies to
	// it.
	Delay time.Duration

	// Lose makes the call return Err. At StageRequest the store does not
	// receive the request. At StageReply the store has carried the request out.
	// At StageNews the watch ends instead of sending Released. The news that a
	// watch has ended is not lost. (To play a request that is never answered,
	// let the Plan block until its ctx ends.)
	Lose bool
	// Err is the error of a call whose request or reply was lost. Nil stands
	// for an error that matches driver.ErrUnavailable. Err must not match
	// driver.ErrGone, driver.ErrSessionEnded or errors.ErrUnsupported: the
	// caller would then believe that the node is gone, that the session has
	// ended, or that the method is not supported.
	Err error

	// Repeat sends a request twice, one after the other, and drops the second
	// reply. It applies to OpDelete, OpReplace and OpCleanUp at StageRequest.
	Repeat bool

	// EndWatchAfter is the time after the reply at which the watch that the
	// request arms is ended. If it is zero, the watch is not ended. It applies
	// to OpCreate, OpWatch and OpWatchQueue at StageRequest.
	EndWatchAfter time.Duration

	// DropAhead and DropWatch remove the nodes ahead and the watch from the
	// result of a Create, as if a store had made the node and had failed after
	// that. They apply to OpCreate at StageReply.
	DropAhead, DropWatch bool

	// EndSession ends the session, and the request with it. First Done closes
	// and Err returns an error, and after that the nodes are removed. It does
	// not apply at StageNews.
	EndSession bool
}
