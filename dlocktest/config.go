package dlocktest

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
)

// Config says how to reach a store and how to inject faults into it. Only New
// is required. Every other function is a hook that injects one kind of fault.
// Cases that need a missing hook are not checked.
//
// Each case calls one hook at a time, from its own goroutines. With Parallel,
// several cases call hooks concurrently. A hook that cannot inject its fault
// calls t.Fatal, and Run then reports the hook and not a broken rule. Hooks
// receive the sessions of New and NewNearRollOver unwrapped, so a type
// assertion or a map lookup works. Later versions may add fields: use field
// names in literals.
type Config struct {
	// New returns a connector to a new and empty store, or to an empty
	// namespace of a store. Run calls it once for each case, which makes
	// several sessions with it. Take the store down with t.Cleanup, which runs
	// after the sessions of the case have been closed.
	New func(t *testing.T) driver.Connector

	// SessionTimeout is the longest time for which the store keeps a session
	// that it does not hear from. It sets no timeout: the connectors of New
	// must use the same one, for example by a parameter in the DSN. The timeout
	// reported by Describe may be shorter, down to half of it. Many cases wait
	// that long, so one or two seconds are a good choice. Below about 200 ms, a
	// slow machine loses sessions. Zero means 10 s.
	SessionTimeout time.Duration

	// Timeout limits how long a case may hang: each wait takes at most Timeout
	// plus three SessionTimeouts. There is no need to raise it for a slow
	// store, on which cases do fewer repetitions. If it is too short, sound
	// drivers fail on a busy machine. Zero means 30 s.
	Timeout time.Duration

	// Parallel is how many cases may run at the same time; 0 and 1 mean one
	// after the other. Cases that end sessions wait for session timeouts, so 4
	// makes Run about twice as fast, even on one core. Of the other cases,
	// which send many requests, at most one runs at a time. The cases of rule
	// 11 count goroutines and always run alone.
	//
	// With more than 1, hooks must be safe for concurrent use, and a fault must
	// affect only the session or the connector that was passed to the hook.
	// This excludes hooks that stop or pause a server that several stores
	// share.
	Parallel int

	// Complete makes every hook below required, except NewLossy.
	Complete bool

	// Repeats says that Create may succeed although its request or reply was
	// lost, because the driver sends the request again or finds its node. If
	// Repeats is false and no such Create fails, Run reports that the hook
	// LoseRequest, LoseReply or HoldRequest has no effect. If it is true, Run
	// cannot tell whether these hooks do anything.
	Repeats bool

	// Abilities lists the abilities that sessions must have. Run fails if one
	// is missing. Sessions may have other abilities, too.
	Abilities []Ability

	// Drop makes the store end the session now, as it would after the session
	// timeout, and returns when that is done. It should not notify the
	// session's process, which may go on using the session for a while.
	Drop func(t *testing.T, s driver.Session)

	// CutOff cuts the session off from the store in both directions: no request
	// arrives and no reply comes back until heal is called. Run also calls heal
	// at the end of the case, so heal may be called twice. Other sessions are
	// not affected. The store is not told, and ends the session after the
	// session timeout.
	//
	// Bytes in flight when the cut begins, or sent during it, may be lost, or
	// may arrive after heal. A hook that loses bytes must break the connection,
	// at the latest when it heals, as a network does.
	CutOff func(t *testing.T, s driver.Session) (heal func())

	// Reset breaks the session's connections to the store once. The driver can
	// reconnect immediately, and the store keeps the session. The cases accept
	// it if the session ends, because a driver may give up a session whose
	// connection broke.
	Reset func(t *testing.T, s driver.Session)

	// SilenceNotices silences the connection on which the store sends notices
	// to the session: nothing arrives on it any more, and there is no error. If
	// several streams share a connection, only the stream with the notices is
	// silenced. Requests and replies pass, so the session lives on. Connections
	// or streams opened later are not affected.
	//
	// If this fault cannot happen, because the driver polls, or because notices
	// and replies come in one stream, set the field to a function that does
	// nothing. Run cannot tell such a driver from a hook that has no effect.
	SilenceNotices func(t *testing.T, s driver.Session)

	// LoseRequest loses the session's next request for op, as when the
	// connection breaks before the request has reached the store. Later
	// requests pass, and the session lives on if the driver lets it.
	//
	// The cases lose requests for faults.OpCreate, OpList, OpDelete and, if
	// sessions can do so, OpReplace and OpSetValue. OpDelete is a Delete with
	// any driver.Cause. OpList includes a list that Create sends besides the
	// request for its node. If a poll or a Watch sends the same request as
	// List, the hook may lose that one instead. The case then checks less.
	LoseRequest func(t *testing.T, s driver.Session, op faults.Op)

	// LoseReply loses the reply to the session's next request for op. The store
	// has carried out the request, but the connection breaks before the reply
	// arrives. Otherwise it is like LoseRequest.
	LoseReply func(t *testing.T, s driver.Session, op faults.Op)

	// HoldRequest holds back the session's next request for op. The session's
	// connection breaks, as with LoseRequest. The function arrive delivers the
	// request unless the store has closed the request's connection, and returns
	// when the store has carried out or refused it. A case may close the
	// session before it calls arrive. The cases hold requests for
	// faults.OpCreate and OpDelete.
	HoldRequest func(t *testing.T, s driver.Session, op faults.Op) (arrive func())

	// DelayReplies delays by d every reply to a request that the session sends
	// from now on. The requests themselves are not delayed. A reply on its way
	// when a CutOff begins still arrives. Notices on the same connection may be
	// delayed as well.
	DelayReplies func(t *testing.T, s driver.Session, d time.Duration)

	// Pause advances the monotonic or the wall clock of the session's process
	// by d without running its timers, as if the process had been paused or the
	// machine had been asleep. It changes nothing in the store. See
	// [SkewLease].
	Pause func(t *testing.T, s driver.Session, d time.Duration)

	// RemoveQueue removes the queue with every node in it, as an operator
	// would, and returns when the store has done so.
	RemoveQueue func(t *testing.T, c driver.Connector, queue string)

	// RemoveNode removes one node, as an operator would, and returns when the
	// store has done so.
	RemoveNode func(t *testing.T, c driver.Connector, queue, name string)

	// PutNode puts a node with exactly that name and data into the queue, as
	// another program would, and creates the queue if necessary. The node
	// belongs to no session. The name may have belonged to a node of dlock that
	// was removed with its queue.
	PutNode func(t *testing.T, c driver.Connector, queue, name string, data []byte)

	// NewNearRollOver is like New, but the sequences of its store are almost
	// used up. Within a hundred creates in one queue the driver must start over
	// or wrap, whichever it does at the end of its sequences. If sequences
	// cannot be used up within the life of a store, set this field to the same
	// function as New.
	NewNearRollOver func(t *testing.T) driver.Connector

	// NewLossy is like New, for a store that may lose data, for example in a
	// fail-over to a replica that lacks the latest changes. The function lose
	// makes the store lose all of its data and then serve requests again. It
	// closes no session and heals no CutOff; a case may call it several times.
	//
	// Connect may block for up to two session timeouts, after a loss as well as
	// before the first session.
	NewLossy func(t *testing.T) (c driver.Connector, lose func())
}

// Ability is something that a driver's sessions may or may not be able to do.
// See [Config.Abilities].
type Ability string

// Run finds out which of these abilities the sessions have.
const (
	// AbilityInspect says that no method of driver.Inspector returns
	// errors.ErrUnsupported.
	AbilityInspect Ability = "Inspect"
	// AbilityAhead says that Create returns the nodes ahead of its own.
	AbilityAhead Ability = "Ahead"
	// AbilityArmed says that Create returns a watch: see driver.Joined.
	AbilityArmed Ability = "Armed"
	// AbilityReleased says that watches send driver.Released, at least if the
	// session that releases the lock has itself waited in the queue before.
	AbilityReleased Ability = "Released"
	// AbilityCheck says that the connectors implement driver.Checker.
	AbilityCheck Ability = "Check"
)

func (c Config) sessionTimeout() time.Duration {
	if c.SessionTimeout > 0 {
		return c.SessionTimeout
	}
	return 10 * time.Second
}

func (c Config) bound() time.Duration {
	timeout := c.Timeout
	if timeout <= 0 {
		timeout = 30 * time.Second
	}
	return timeout + 3*c.sessionTimeout()
}
