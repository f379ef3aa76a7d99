package dlocktest

import (
	"reflect"
	"testing"
	"time"

	"github.com/dlock-go/dlock/dlocktest/faults"
	"github.com/dlock-go/dlock/driver"
)

// Config says how to reach a store and which faults can be played on it. Only
// New is required. A hook that is nil is a fault that cannot be played, and the
// cases that need it are not checked.
//
// The hooks are called by one case at a time, from goroutines of that case. A
// hook that cannot play its fault calls t.Fatal; Run then reports that the hook
// failed and that the case was not checked, not that a rule is broken. A
// session that a hook is given came from a connector of New or NewNearRollOver,
// unchanged, so that a type assertion or a map finds what belongs to it. Later
// versions may add fields: use field names in literals.
type Config struct {
	// New returns a connector to a store that is new and empty, or to a
	// namespace of its own. Every case calls it once and makes several sessions
	// with it. t.Cleanup takes the store down: the case's sessions are closed
	// by then.
	New func(t *testing.T) driver.Connector

	// SessionTimeout is how long the store keeps a session that it does not
	// hear of, at most. Cases wait that long, and Config.Pause skips it, so
	// choose the shortest that the store allows: one or two seconds are good,
	// and with less than about 200 ms a slow machine loses sessions by itself.
	// Zero means 10 s.
	SessionTimeout time.Duration

	// Timeout bounds each wait of a case, together with three SessionTimeouts.
	// It is there to end a case that hangs, not to judge a slow store: a case
	// that repeats something many times repeats it less often on a store that
	// is slow. Zero means 30 s.
	Timeout time.Duration

	// Complete makes it a failure to leave out a hook below.
	Complete bool

	// Abilities are what sessions are expected to be able to do. A session that
	// lacks one of them fails Run; without this field the cases for it are
	// reported as not applicable. An ability that is not named is allowed.
	Abilities []Ability

	// Drop makes the store end the session now, as it does after the session's
	// timeout. It returns when the store has done so; the session's own process
	// may not know yet, and should not.
	Drop func(t *testing.T, s driver.Session)

	// CutOff cuts the session off from the store, in both directions: nothing
	// that it sends arrives and no answer comes back, until heal is called or
	// the case ends (heal is called then, too; it may be called twice). Other
	// sessions are not cut off. The store does not learn of it: it ends the
	// session when the timeout has passed.
	//
	// Bytes that are on their way when the cut begins, and bytes that are sent
	// during the cut may be lost, or may be held and arrive after heal. A hook
	// that loses them has to break the connection by the time of heal at the
	// latest, as a network does that has lost bytes of a stream.
	CutOff func(t *testing.T, s driver.Session) (heal func())

	// Reset breaks the session's connections to the store once. Neither side is
	// cut off: the driver can connect again at once, and the store keeps the
	// session. If a driver gives its session up with its connection, the
	// session ends, and the cases accept that.
	Reset func(t *testing.T, s driver.Session)

	// LoseRequest loses the next request for op that the session sends, as when
	// the connection breaks before the request has reached the store. Requests
	// after that one pass again. The session lives on, if the driver lets it.
	//
	// The cases lose creates, lists, deletes (of either cause) and, if sessions
	// can replace, replaces. A list that a Create sends besides the request for
	// its node is meant by faults.OpList, too.
	LoseRequest func(t *testing.T, s driver.Session, op faults.Op)

	// LoseReply is LoseRequest for a request that the store has carried out: its
	// reply is lost, as when the connection breaks before the reply has come.
	LoseReply func(t *testing.T, s driver.Session, op faults.Op)

	// HoldRequest makes the next request for op that the session sends late:
	// the session sees its connection break, as with LoseRequest, and the request
	// arrives at the store when the case calls arrive, unless the store has
	// closed that connection. Requests after that one pass at once. The function
	// arrive returns when the store has carried the request out or has refused
	// it. The cases hold creates and deletes.
	HoldRequest func(t *testing.T, s driver.Session, op faults.Op) (arrive func())

	// DelayReplies makes every reply to a request that the session sends from
	// now on take d on its way back, while the request itself arrives at once.
	// A CutOff that begins later stops no reply that the store has sent before.
	DelayReplies func(t *testing.T, s driver.Session, d time.Duration)

	// Pause makes the process of the session see its monotonic or its wall
	// clock d later from now on, without its timers having run: as after a
	// pause of the process or a sleep of the machine. It does nothing to the
	// store.
	Pause func(t *testing.T, s driver.Session, d time.Duration)

	// RemoveQueue removes the queue and every node in it, as an operator does.
	// It returns when the store has done so.
	RemoveQueue func(t *testing.T, c driver.Connector, queue string)

	// RemoveNode removes one node, as an operator does. It returns when the
	// store has done so.
	RemoveNode func(t *testing.T, c driver.Connector, queue, name string)

	// PutNode puts a node of exactly that name and data into the queue, making
	// the queue where it is missing, as a foreign program does. The node
	// belongs to no session. The name may be one that a node of dlock had
	// before the queue was removed.
	PutNode func(t *testing.T, c driver.Connector, queue, name string, data []byte)

	// NewNearRollOver is New for a store in which the sequences are about to
	// end: within a hundred creates in one queue the driver has to roll over,
	// wrap, or do what it does then. A driver whose sequences cannot end within
	// the life of a store sets it to the same function as New.
	NewNearRollOver func(t *testing.T) driver.Connector
}

// Ability is something that sessions may be able to do or not, for
// [Config.Abilities].
type Ability string

// The abilities. Run finds out by trial which of them sessions have.
const (
	// AbilityReplace, AbilityRead and AbilityWalk say that driver.Replace,
	// driver.Read and driver.Walk do not return errors.ErrUnsupported.
	AbilityReplace Ability = "Replace"
	AbilityRead    Ability = "Read"
	AbilityWalk    Ability = "Walk"
	// AbilityAhead says that Create returns the nodes ahead of its own.
	AbilityAhead Ability = "Ahead"
	// AbilityArmed says that Create returns the watch that the caller would arm
	// next.
	AbilityArmed Ability = "Armed"
	// AbilityReleased says that watches send driver.Released.
	AbilityReleased Ability = "Released"
)

func (c Config) sessionTimeout() time.Duration {
	if c.SessionTimeout > 0 {
		return c.SessionTimeout
	}
	return 10 * time.Second
}

// bound is how long one wait may take.
func (c Config) bound() time.Duration {
	timeout := c.Timeout
	if timeout <= 0 {
		timeout = 30 * time.Second
	}
	return timeout + 3*c.sessionTimeout()
}

// need is a set of things without which a case cannot be checked: hooks of
// Config, and abilities of sessions.
type need uint

const (
	needDrop need = 1 << iota
	needCutOff
	needReset
	needLoseRequest
	needLoseReply
	needHoldRequest
	needDelayReplies
	needPause
	needRemoveQueue
	needRemoveNode
	needPutNode
	needRollOver

	needReplace
	needRead
	needWalk
	needAhead
	needArmed
	needReleased
)

// needLosses are both losses.
const needLosses = needLoseRequest | needLoseReply

// requirement is one need, with the name of the Ability or of the field of
// Config.
type requirement struct {
	need    need
	name    string
	ability bool // of sessions, rather than a hook
}

// needs holds all requirements. The abilities come first: a case that does not
// apply to a driver is not reported for a missing hook.
var needs = []requirement{
	{needReplace, string(AbilityReplace), true},
	{needRead, string(AbilityRead), true},
	{needWalk, string(AbilityWalk), true},
	{needAhead, string(AbilityAhead), true},
	{needArmed, string(AbilityArmed), true},
	{needReleased, string(AbilityReleased), true},
	{needDrop, "Drop", false},
	{needCutOff, "CutOff", false},
	{needReset, "Reset", false},
	{needLoseRequest, "LoseRequest", false},
	{needLoseReply, "LoseReply", false},
	{needHoldRequest, "HoldRequest", false},
	{needDelayReplies, "DelayReplies", false},
	{needPause, "Pause", false},
	{needRemoveQueue, "RemoveQueue", false},
	{needRemoveNode, "RemoveNode", false},
	{needPutNode, "PutNode", false},
	{needRollOver, "NewNearRollOver", false},
}

// needOf returns the need of an ability, or zero.
func needOf(a Ability) need {
	for _, n := range needs {
		if n.ability && n.name == string(a) {
			return n.need
		}
	}
	return 0
}

// hooks returns the hooks that the configuration has.
func (c Config) hooks() (have need) {
	fields := reflect.ValueOf(c)
	for _, n := range needs {
		if !n.ability && !fields.FieldByName(n.name).IsNil() {
			have |= n.need
		}
	}
	return have
}
