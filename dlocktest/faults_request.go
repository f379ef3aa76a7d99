package dlocktest

import (
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// The methods of a [Request]. All but the last are those of package driver. MethodCleanUp is the
// Delete that Faults sends after a Create whose caller has got no reply.
const (
	MethodConnect = "Connect"
	MethodCreate  = "Create"
	MethodList    = "List"
	MethodWatch   = "Watch"
	MethodDelete  = "Delete"
	MethodReplace = "Replace"
	MethodRelease = "Release"
	MethodRead    = "Read"
	MethodWalk    = "Walk"
	MethodClose   = "Close"
	MethodCleanUp = "CleanUp"
)

// Stage is how far a request has come.
type Stage int

const (
	// StageRequest: it is on its way to the store, which has not seen it yet.
	StageRequest Stage = iota
	// StageReply: the store has answered, and the reply is on its way back. A Close has no reply.
	StageReply
	// StageWatch: a watch has ended, and the news is on its way.
	StageWatch
)

// String returns "request", "reply" or "watch".
func (s Stage) String() string {
	switch s {
	case StageReply:
		return "reply"
	case StageWatch:
		return "watch"
	}
	return "request"
}

// Request is a call of a driver on its way to the store or back, as [Decide] sees it.
type Request struct {
	Stage  Stage
	Method string // MethodCreate and so on
	// Session is from 1, in the order of the calls of Connect, also of those that failed; a call
	// whose ctx had ended before has none.
	Session int
	Nth     int // from 1: among the requests of the session for the same method and queue

	Queue string
	// Name is the prefix of a Create, and the node's name for all else; it is empty for the
	// watch of a queue. Of a Walk it is where to look.
	Name string
	// Place is what Delete, Release, Replace, CleanUp and WatchPlace (whose method is MethodWatch) were
	// called with, and what Create and Replace have returned once they are answered.
	Place driver.Place
	// Cause is why a watch has ended.
	Cause driver.Cause
	// Err is what the store has answered.
	Err error
}

// String returns the request in words, such as `Create "stock/42" "web1-W-", reply`.
func (r Request) String() string {
	s := r.Method
	if r.Queue != "" {
		s += fmt.Sprintf(" %q", r.Queue)
	}
	if r.Name != "" {
		s += fmt.Sprintf(" %q", r.Name)
	}
	if r.Stage != StageRequest {
		s += ", " + r.Stage.String()
	}
	return s
}

func (r Request) failed(err error) error { return fmt.Errorf("faults: %s: %w", r, err) }

// Fault is what becomes of a request at one stage of its way. The zero Fault lets it pass.
type Fault struct {
	// Delay is how long it stays on its way. Of a Close and of the end of a watch nothing else
	// counts.
	Delay time.Duration

	// Lose has the caller get Err: at StageRequest the store never sees the request, at
	// StageReply it has carried the request out. A request that is not answered at all is one
	// that Decide keeps until its ctx ends.
	Lose bool
	// Err is the error of what was lost. Nil stands for one that matches driver.ErrUnavailable,
	// which passes; another one does not pass. It must not match driver.ErrGone nor
	// driver.ErrSessionEnded, which recipes believe.
	Err error

	// Repeat sends a request twice in a row, at StageRequest. The second reply is dropped. It
	// counts for Delete, Release, Replace and CleanUp only: nothing else may be repeated by
	// a network that keeps the contract.
	Repeat bool

	// CloseAfter closes a watch that is armed now, so long after, if it has not ended before. It
	// counts for Watch at StageRequest; zero is never.
	CloseAfter time.Duration

	// End ends the session, and the request with it: Done closes and Err turns non-nil, then the
	// nodes go.
	End bool
}
