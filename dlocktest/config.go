package dlocktest

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Config says how to reach a store and which faults can be played on it. Only
// New is required; a field left zero is a fault that can't be played, and the cases that need it are not checked.
//
// The functions are called by one case at a time, from a goroutine of
// that case. They report what they can't do with t.Fatal. A session that they are given is one that came
// from a connector of New or NewNearRollOver, unchanged, so that a type assertion
// or a map finds what belongs to it. Fields may be added in later
// versions: use field names in literals.
type Config struct {
	// New returns a connector to a store that is new and empty, or to a
	// namespace of its own. It is called once by every case, which makes
	// several sessions with it. t.Cleanup takes the store down: the case's
	// sessions are closed by then.
	New func(t *testing.T) driver.Connector

	// SessionTimeout is how long the store keeps a session that it does not
	// hear of, at most. Cases wait that long, and Config.Pause skips it, so
	// choose the shortest that the store allows: one or two seconds are good, and shorter than about 200 ms lets a
	// slow machine lose sessions by itself. Zero means 10 s.
	SessionTimeout time.Duration

	// Timeout bounds one case, together with three SessionTimeouts. It is there to
	// end a case that hangs, not to judge a slow store. Zero means 30 s.
	Timeout time.Duration

	// Complete makes it a failure to leave out a function below.
	Complete bool

	// Expire makes the store end the session now, as it does after the
	// session's timeout. It returns when the store has done so; the session's own process may not know yet.
	Expire func(t *testing.T, s driver.Session)

	// CutOff cuts the session off from the store, in both directions: nothing that
	// it sends arrives and no answer comes back, until heal is called or the
	// case ends (heal is called then, too; it may be called twice). Other sessions are
	// not cut off. The store knows nothing of it: it ends the session when the timeout has passed.
	CutOff func(t *testing.T, s driver.Session) (heal func())

	// LoseReply makes the session lose the reply of the next request for op that it
	// sends, as when the connection breaks: after the store carried
	// the request out if committed, else before. Requests after that one pass again. The session lives on, if the
	// driver lets it.
	LoseReply func(t *testing.T, s driver.Session, op Op, committed bool)

	// Pause makes the process of the session see its monotonic or its wall clock d later
	// from now on, without its timers having run: as after a pause of the
	// process or a sleep of the machine. It does nothing to the store.
	Pause func(t *testing.T, s driver.Session, d time.Duration)

	// RemoveQueue removes the queue and every node in it, as an operator does
	// who is not a session. It returns when the store has done so.
	RemoveQueue func(t *testing.T, c driver.Connector, queue string)

	// RemoveNode removes one node, as an operator does. It returns when the store has done so.
	RemoveNode func(t *testing.T, c driver.Connector, queue, name string)

	// PutNode puts a node of exactly that name into the queue, making the queue where it is
	// missing, as a foreign program does. The node belongs to no session.
	PutNode func(t *testing.T, c driver.Connector, queue, name string, data []byte)

	// NewNearRollOver is New for a store in which the sequences are about to
	// end: within a hundred creates in one queue the driver has to
	// roll over, wrap, or whatever it does. A driver whose sequences can't
	// end within the life of a store sets it to the same function as New.
	NewNearRollOver func(t *testing.T) driver.Connector
}

// Op is a kind of request, for [Config.LoseReply].
type Op int

// The kinds of requests whose reply can be lost. A case uses OpReplace and OpRelease only if the
// session implements [driver.Replacer] and [driver.Releaser].
const (
	OpCreate Op = iota
	OpDelete
	OpReplace
	OpRelease
)

// String returns "create", "delete", "replace" or "release".
func (o Op) String() string {
	switch o {
	case OpCreate:
		return "create"
	case OpDelete:
		return "delete"
	case OpReplace:
		return "replace"
	case OpRelease:
		return "release"
	}
	return "unknown"
}

func (c Config) sessionTimeout() time.Duration {
	if c.SessionTimeout > 0 {
		return c.SessionTimeout
	}
	return 10 * time.Second
}

// bound is how long one case may take.
func (c Config) bound() time.Duration {
	timeout := c.Timeout
	if timeout <= 0 {
		timeout = 30 * time.Second
	}
	return timeout + 3*c.sessionTimeout()
}

// need is a set of things without which a case can't be checked: functions
// of Config first, then optional interfaces of the session.
type need uint

const (
	needExpire need = 1 << iota
	needCutOff
	needLoseReply
	needPause
	needRemoveQueue
	needRemoveNode
	needPutNode
	needRollOver

	needReplacer
	needReleaser
	needReader
	needWalker
)

// needs names them. The interfaces come first: what does not apply needs no function.
var needs = []struct {
	need     need
	name     string
	optional bool // an interface of the session rather than a field of Config
}{
	{needReplacer, "Replacer", true},
	{needReleaser, "Releaser", true},
	{needReader, "Reader", true},
	{needWalker, "Walker", true},
	{needExpire, "Expire", false},
	{needCutOff, "CutOff", false},
	{needLoseReply, "LoseReply", false},
	{needPause, "Pause", false},
	{needRemoveQueue, "RemoveQueue", false},
	{needRemoveNode, "RemoveNode", false},
	{needPutNode, "PutNode", false},
	{needRollOver, "NewNearRollOver", false},
}

// hooks returns what the configuration has.
func (c Config) hooks() (have need) {
	add := func(n need, ok bool) {
		if ok {
			have |= n
		}
	}
	add(needExpire, c.Expire != nil)
	add(needCutOff, c.CutOff != nil)
	add(needLoseReply, c.LoseReply != nil)
	add(needPause, c.Pause != nil)
	add(needRemoveQueue, c.RemoveQueue != nil)
	add(needRemoveNode, c.RemoveNode != nil)
	add(needPutNode, c.PutNode != nil)
	add(needRollOver, c.NewNearRollOver != nil)
	return have
}

// abilities returns the optional interfaces that the session implements.
func abilities(s driver.Session) (have need) {
	if _, ok := s.(driver.Replacer); ok {
		have |= needReplacer
	}
	if _, ok := s.(driver.Releaser); ok {
		have |= needReleaser
	}
	if _, ok := s.(driver.Reader); ok {
		have |= needReader
	}
	if _, ok := s.(driver.Walker); ok {
		have |= needWalker
	}
	return have
}
