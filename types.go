package dlock

import (
	"context"

	"github.com/dlock-go/dlock/recipes"
)

// Client is a client of one store. It has one session with the store at a time.
// It begins a session on first use, and another one after the session has
// ended. One Client serves a whole program. It is safe for use by many
// goroutines and must not be copied.
//
// A Client comes from [Open] or [NewClient]. The zero value and a nil *Client
// behave like a closed client. The methods, of which [recipes.Client] has the
// full text:
//
//	func (c *Client) RWMutex(name string, opts ...Option) *RWMutex
//	func (c *Client) Ping(ctx context.Context) error
//	func (c *Client) Close() error
//	func (c *Client) String() string
//	func (c *Client) GoString() string
//
// The name of a lock is one or more segments with slashes between them, such as
// "stock/42". It has at most 512 bytes of printable UTF-8, and no segment is
// empty, "." or "..". Locks of different names never block each other.
//
// If Close returns an error that matches [ErrUnavailable], the store could not
// be reached. The client's nodes may then block other clients until the session
// times out in the store.
type Client = recipes.Client

// RWMutex is a read-write lock that all clients of a store share under one name.
// Any number of contenders hold it shared, or one holds it exclusively. It is
// safe for use by many goroutines.
//
// An RWMutex comes from Client.RWMutex. With its zero value and nil, every call
// that locks returns an error that matches [ErrClosed]. The methods, of which
// [recipes.RWMutex] has the full text:
//
//	func (m *RWMutex) Lock(ctx context.Context) (*Lock, error)
//	func (m *RWMutex) RLock(ctx context.Context) (*Lock, error)
//	func (m *RWMutex) TryLock(ctx context.Context) (*Lock, error)
//	func (m *RWMutex) TryRLock(ctx context.Context) (*Lock, error)
//	func (m *RWMutex) WithLock(ctx context.Context,
//		f func(ctx context.Context) error) error
//	func (m *RWMutex) WithRLock(ctx context.Context,
//		f func(ctx context.Context) error) error
//	func (m *RWMutex) Queue(ctx context.Context) ([]Contender, error)
//	func (m *RWMutex) Name() string
//	func (m *RWMutex) String() string
//	func (m *RWMutex) GoString() string
//
// The function of WithLock gets a context of Lock.Context, which ends when the
// lock is lost. If the function panics, WithLock unlocks, and the panic goes
// on.
type RWMutex = recipes.RWMutex

// Lock is a lock that a call of an [RWMutex] has obtained. It is held until
// Unlock, or until it is lost. A Lock is safe for use by many goroutines; pass a
// pointer to it.
//
// The zero value and nil, which come from no call, behave like a Lock that was
// unlocked. The methods, of which [recipes.Lock] has the full text:
//
//	func (l *Lock) Context(parent context.Context) context.Context
//	func (l *Lock) Err() error
//	func (l *Lock) Lost() <-chan struct{}
//	func (l *Lock) Token() int64
//	func (l *Lock) Downgrade(ctx context.Context) error
//	func (l *Lock) Mode() Mode
//	func (l *Lock) Node() string
//	func (l *Lock) Unlock() error
//	func (l *Lock) String() string
//	func (l *Lock) GoString() string
//
// When a context of Lock.Context has ended, [context.Cause] returns an error
// that matches [ErrLost] or [ErrNotHeld].
//
// A resource compares the token of a shared lock with the greatest token of an
// exclusive lock that it has seen. It does not remember the token of a shared
// lock, because readers hold the lock together.
//
// After an error of Downgrade that matches [ErrUnavailable] the lock counts as
// shared. In the background, the client goes on trying to tell the store of the
// downgrade.
type Lock = recipes.Lock

// WithoutReentry returns a child of ctx with which no lock is taken again: Lock
// and RLock join the queue and wait, even for the lock that ctx belongs to. It
// is for goroutines that must not hold a lock together with each other, or with
// the goroutine that started them. A nil ctx counts as context.Background. See
// [recipes.WithoutReentry].
//
// A context of Lock.Context ends when the lock is unlocked. A goroutine that
// waits for that lock needs [context.WithoutCancel] besides. If the holder waits
// for such a goroutine before it unlocks, both wait for ever.
func WithoutReentry(ctx context.Context) context.Context { return recipes.WithoutReentry(ctx) }

// Mode is how a lock is held or wanted: [Shared] or [Exclusive]. As text it is
// "shared" or "exclusive", also in JSON. The methods, of which [recipes.Mode]
// has the full text:
//
//	func (m Mode) String() string
//	func (m Mode) MarshalText() ([]byte, error)
//	func (m *Mode) UnmarshalText(text []byte) error
type Mode = recipes.Mode

const (
	// Shared is the mode of readers: any number of them hold the lock together.
	Shared Mode = recipes.Shared
	// Exclusive is the mode of a writer: no other contender holds the lock.
	Exclusive Mode = recipes.Exclusive
)

// ParseMode returns the mode for "shared" or "exclusive", and an error for any
// other text.
func ParseMode(s string) (Mode, error) { return recipes.ParseMode(s) }

// Contender is a holder or waiter in a lock's queue, as RWMutex.Queue shows it:
//
//	type Contender struct {
//		Node      string    // the name of its node
//		Host      string    // the host name in Node; empty if Node is no name of dlock
//		Mode      Mode
//		Holds     bool      // whether it holds the lock; else it waits
//		HeldSince time.Time // when this client got the lock on this node, or zero
//		Owner     string    // its session, in the store's terms
//		Token     int64     // its fencing token
//		Created   time.Time // when the node was created, by the store's clock
//		Record    Record
//	}
//
//	func (c Contender) String() string
//
// The last four fields are zero if the driver cannot read nodes, or has no
// permission to read this one. Any client that may write to the store can have
// written Node, Host, Token and Record, so they prove nothing. String quotes
// text that would not print.
type Contender = recipes.Contender

// Record is what the node of a contender says of its process, for people who
// look at a queue:
//
//	type Record struct {
//		ID      string    // random, and different in every node
//		PID     int       // the id of the process
//		Program string    // the base name of its program
//		Since   time.Time // when the process began to contend, by its own clock
//		Data    string    // what WithData added, if that is valid UTF-8
//		Bytes   []byte    // what WithData added, if it is not
//	}
//
//	func (r Record) String() string
type Record = recipes.Record
