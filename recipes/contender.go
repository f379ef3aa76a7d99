package recipes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Contender is a holder or waiter in a lock's queue, as [RWMutex.Queue] shows
// it.
type Contender struct {
	Node  string // the name of its node
	Host  string // the host name as it stands in Node, see [WithHostname]; empty if dlock did not make that name
	Mode  Mode
	Holds bool // true if it holds the lock, false if it waits
	// HeldSince is when this client was granted the lock, by this client's
	// clock. It is zero if this client does not hold the lock on this node.
	// With retention it is when the client got the node.
	HeldSince time.Time
	// Owner, Token, Created and Record are zero if the driver cannot read
	// nodes, or has no permission to read this one. Any client that may write
	// to the store can have written Node, Host, Token and Record, so they prove
	// nothing. Quote them before you print them on a terminal, as String does.
	Owner   string // the session, in the store's terms
	Token   int64
	Created time.Time // when the node was created, by the store's clock; zero if unknown
	Record  Record
}

// String returns one line for people. It quotes texts of the node that would
// not print, and cuts texts that are very long.
func (c Contender) String() string {
	verb := "waits"
	if c.Holds {
		verb = "holds"
	}
	line := fmt.Sprintf("%s %s, %v", printable(c.Node), verb, c.Mode)
	if c.Host != "" {
		line += ", host " + printable(c.Host)
	}
	if c.Token != 0 {
		line += fmt.Sprintf(", token %d", c.Token)
	}
	if c.Owner != "" {
		line += ", session " + printable(c.Owner)
	}
	if !c.Created.IsZero() {
		line += ", created " + c.Created.Format(time.RFC3339Nano)
	}
	if !c.HeldSince.IsZero() {
		line += ", held by this client since " + c.HeldSince.Format(time.RFC3339Nano)
	}
	if !c.Record.empty() {
		line += ", " + c.Record.String()
	}
	return line
}

// Queue returns the holders of the lock and the contenders that wait for it, in
// the order of the queue. It makes one request, and one more for each contender
// if the driver can read nodes. The queue may have changed when Queue returns:
// the result is for people, and not for decisions.
func (m *RWMutex) Queue(ctx context.Context) ([]Contender, error) {
	if err := m.valid(ctx); err != nil {
		return nil, err
	}
	return m.queue.list(ctx)
}

func (q *queue) list(ctx context.Context) (contenders []Contender, err error) {
	if err := q.client.beginCall(); err != nil {
		return nil, lockError(q.name, err)
	}
	defer q.client.endCall()
	err = q.client.onSession(ctx, func(s *session) (err error) {
		contenders, err = s.contenders(ctx, q.name)
		return err
	})
	if err != nil {
		return nil, lockError(q.name, q.client.requestError(ctx, err))
	}
	return contenders, nil
}

func (s *session) contenders(ctx context.Context, queue string) ([]Contender, error) {
	nodes, err := s.List(ctx, queue)
	if err != nil {
		return nil, err
	}
	since := s.heldSince(queue)
	contenders := make([]Contender, 0, len(nodes))
	for i, n := range nodes {
		w := wantOf(n)
		c := Contender{Node: n.Name, Host: hostOf(n), Mode: w.mode(), Holds: len(w.rule(nodes[:i])) == 0, HeldSince: since[n]}
		switch err := s.describe(ctx, queue, &c); {
		case errors.Is(err, driver.ErrGone): // the node was removed meanwhile
		case errors.Is(err, fs.ErrPermission): // this contender is shown without the fields that describe fills in
			contenders = append(contenders, c)
		case err != nil:
			return nil, err
		default:
			contenders = append(contenders, c)
		}
	}
	return contenders, nil
}

// describe fills in the fields that are known only if the driver can read
// nodes.
func (s *session) describe(ctx context.Context, queue string, c *Contender) error {
	info, err := driver.Read(ctx, s.ofDriver(), queue, c.Node)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return nil
	case err != nil:
		return err
	}
	c.Owner, c.Token, c.Created, c.Record = info.Owner, info.Token, info.Created, parseRecord(info.Data)
	return nil
}
