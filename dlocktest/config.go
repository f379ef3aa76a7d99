package dlocktest

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
)

// Config says how to reach a store and how to play faults on it. Only New is
// required. Every other function is a hook that plays one fault. If a hook is
// nil, the cases that need it are not checked.
//
// Run calls the hooks for one case at a time, from goroutines of that case. A
// hook that cannot play its fault calls t.Fatal. Run then reports that the hook
// failed, and not that a rule is broken. The sessions that a hook receives came
// from a connector of New or NewNearRollOver. They are not wrapped, so a type
// assertion or a map finds what belongs to a session. Later versions may add
// fields: use field names in literals.
type Config struct {
	// New returns a connector to a new and empty store, or to an empty
	// namespace of a store. Run calls it once for each case, which makes
	// several sessions with it. Take the store down with t.Cleanup: the
	// sessions of the case are closed by then.
	New func(t *testing.T) driver.Connector

	// SessionTimeout is the longest time for which the store keeps a session
	// that it does not hear from. It does not set the timeout of the sessions: the
	// connectors of New have to have the same one, for example by a parameter of
	// the DSN. The timeout that driver.Describe returns may be shorter, but not
	// less than half of it. Many cases wait that long, so choose a short one: one
	// or two seconds are good. With less than about 200 ms a slow machine loses
	// sessions without a fault of the driver. Zero means 10 s.
	SessionTimeout time.Duration

	// Timeout bounds each wait of a case: a wait takes at most Timeout and
	// three SessionTimeouts. This ends a case that hangs. A slow store needs no
	// longer Timeout: a case that repeats something many times repeats it less
	// often on a slow store. A short Timeout makes sound drivers fail on a busy
	// machine. Zero means 30 s.
	Timeout time.Duration

	// Complete makes each hook below required: a hook that is nil is a failure.
	Complete bool

	// Repeats says that a Create whose request or reply was lost may return success,
	// because the driver sends the request again or finds its node. Without Repeats,
	// Run reports LoseRequest, LoseReply or HoldRequest as a hook without effect if no
	// such Create fails. With Repeats, Run cannot tell such a driver from a hook that
	// does nothing.
	Repeats bool

	// Abilities are the abilities that sessions have to have. A session that
	// lacks one of them fails Run. A session may have abilities that are not
	// named here.
	Abilities []Ability

	// Drop makes the store end the session now, as the store does after the
	// session's timeout. Drop returns when the store has ended the session. It
	// should not tell the process of the session, so that the process need not
	// know of the end yet.
	Drop func(t *testing.T, s driver.Session)

	// CutOff cuts the session off from the store in both directions: no request
	// arrives and no reply comes back until heal is called. Run calls heal at
	// the end of the case as well, so heal may be called twice. Other sessions
	// are not cut off. The store is not told: it ends the session after the
	// session's timeout.
	//
	// Bytes that are on their way when the cut begins, or are sent during the
	// cut, may be lost, or may be held and arrive after heal. A hook that loses
	// bytes has to break the connection, by the time of heal at the latest. A
	// network does the same when it has lost bytes of a stream.
	CutOff func(t *testing.T, s driver.Session) (heal func())

	// Reset breaks the session's connections to the store once. The driver can
	// connect again at once, and the store keeps the session. The cases accept
	// that the session ends, because a driver may give up a session whose
	// connection broke.
	Reset func(t *testing.T, s driver.Session)

	// SilenceNotices makes the connection silent on which the store sends notices to
	// the session: the session receives nothing more on it, and sees no error. If
	// several streams share a connection, it makes the stream of the notices silent.
	// All other requests and replies pass, so the session lives on. A connection or
	// stream that the session opens later is not silent.
	//
	// If this fault cannot happen, set the field to a function that does nothing. That
	// is so if the driver polls, and if the notices come on the connection of the
	// replies, in one stream with them. Run cannot tell such a driver from a hook that
	// has no effect.
	SilenceNotices func(t *testing.T, s driver.Session)

	// LoseRequest loses the next request for op that the session sends, as when
	// the connection breaks before the request has reached the store. Later
	// requests pass again. The session lives on, if the driver lets it.
	//
	// The cases lose requests for faults.OpCreate, OpList and OpDelete (with either
	// cause) and, if sessions can replace, for OpReplace. OpList includes a list that
	// Create sends besides the request for its node. If a poll or a Watch sends the
	// same request as List, the hook may lose that one. Then the case checks less.
	LoseRequest func(t *testing.T, s driver.Session, op faults.Op)

	// LoseReply loses the reply to the next request for op that the session
	// sends. The store has carried the request out, and the connection breaks
	// before the reply has come. Everything else is as with LoseRequest.
	LoseReply func(t *testing.T, s driver.Session, op faults.Op)

	// HoldRequest holds the next request for op that the session sends. The
	// session sees its connection break, as with LoseRequest, and later
	// requests pass at once. When the case calls arrive, the request arrives at
	// the store, unless the store has closed the connection of the request. The
	// session may have been closed by that time. The function arrive returns
	// when the store has carried the request out or has refused it. The cases
	// hold requests for faults.OpCreate and OpDelete.
	HoldRequest func(t *testing.T, s driver.Session, op faults.Op) (arrive func())

	// DelayReplies delays by d every reply to a request that the session sends
	// from now on. The request itself arrives at once. If a CutOff begins while
	// a reply is on its way, the reply still arrives. If notices come on the same
	// connection as replies, they may be late as well.
	DelayReplies func(t *testing.T, s driver.Session, d time.Duration)

	// Pause moves the monotonic or the wall clock of the session's process on
	// by d. The timers of the process do not run meanwhile. So the session is
	// in the state after a pause of the process or a sleep of the machine. It
	// changes nothing in the store. See [SkewLease].
	Pause func(t *testing.T, s driver.Session, d time.Duration)

	// RemoveQueue removes the queue with every node in it, as an operator does.
	// It returns when the store has removed them.
	RemoveQueue func(t *testing.T, c driver.Connector, queue string)

	// RemoveNode removes one node, as an operator does. It returns when the
	// store has removed it.
	RemoveNode func(t *testing.T, c driver.Connector, queue, name string)

	// PutNode puts a node of exactly that name and data into the queue, as
	// another program does, and makes the queue if it is missing. The node
	// belongs to no session. The hook has to accept a name that a node of dlock
	// had before the queue was removed.
	PutNode func(t *testing.T, c driver.Connector, queue, name string, data []byte)

	// NewNearRollOver is like New, but the sequences of its store have almost
	// reached their highest number. Within a hundred creates in one queue the
	// driver has to do what it does when the sequences are used up: start over,
	// or wrap. If sequences cannot be used up within the life of a store, set the
	// field to the same function as New.
	NewNearRollOver func(t *testing.T) driver.Connector
}

// Ability is something that the sessions of a driver may be able to do or not.
// See [Config.Abilities].
type Ability string

// The abilities. Run tries which of them the sessions have.
const (
	// AbilityReplace, AbilityRead and AbilityWalk say that driver.Replace,
	// driver.Read and driver.Walk do not return errors.ErrUnsupported.
	AbilityReplace Ability = "Replace"
	AbilityRead    Ability = "Read"
	AbilityWalk    Ability = "Walk"
	// AbilityAhead says that Create returns the nodes ahead of its own.
	AbilityAhead Ability = "Ahead"
	// AbilityArmed says that Create returns a watch, see driver.Joined.
	AbilityArmed Ability = "Armed"
	// AbilityReleased says that watches send driver.Released, at least if the session
	// that releases the lock has waited in the queue before.
	AbilityReleased Ability = "Released"
)

func (c Config) sessionTimeout() time.Duration {
	if c.SessionTimeout > 0 {
		return c.SessionTimeout
	}
	return 10 * time.Second
}

// bound returns how long one wait of a case may take.
func (c Config) bound() time.Duration {
	timeout := c.Timeout
	if timeout <= 0 {
		timeout = 30 * time.Second
	}
	return timeout + 3*c.sessionTimeout()
}
