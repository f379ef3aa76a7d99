package engine

import (
	"context"
	"math/rand/v2"
	"time"
)

// Queue names a queue in the store, and holds the settings of its entries. A
// Queue does not change.
type Queue struct {
	Name    string
	Wait    Wait
	BackOff func() BackOff // makes the pauses after errors of the watch of a granted node
	// Renamed is called after each try to give a node another name.
	Renamed func(ctx context.Context, node string, err error)
	// Reaped is called when a request that was left to the reaper has been
	// carried out. If the reaper has given the request up, err says why.
	Reaped func(node string, tries int, err error)
}

// Spec describes the node of an entry.
type Spec struct {
	Prefix string
	Data   []byte // the content of the node; different in every call of Create
	Rule   Rule
	// Exclusive says that no other entry is granted beside this one. When this
	// entry is removed, the next entry is granted.
	Exclusive bool
	// Waits says that the entry waits if a node blocks it. The driver may then
	// watch that node when it creates the entry's own node.
	Waits bool
}

// Kind is a way of waiting.
type Kind int

const (
	// WatchPredecessor watches the own node and the node that blocks it.
	WatchPredecessor Kind = iota
	// WatchQueue watches the whole queue.
	WatchQueue
	// Poll watches nothing and lists the queue from time to time.
	Poll
)

// Wait is a way of waiting with its setting.
type Wait struct {
	Kind     Kind
	Interval time.Duration // the pause of Poll, on average
}

// NextPoll returns how long Poll waits until it lists the queue again. Pauses are
// chosen at random, so that contenders do not list the queue at the same time.
func (w Wait) NextPoll() time.Duration { return w.Interval/2 + rand.N(w.Interval) }
