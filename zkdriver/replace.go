package zkdriver

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// Replace implements driver.Replacer, with
//
//	multi(delete the old name; create the new name, ephemeral, with the same data)
//
// The new node has another Czxid, so its data gets a last line that says the token: see
// envelope.
func (s *session) Replace(ctx context.Context, queue string, p driver.Place, prefix string) (driver.Place, error) {
	if err := s.checkPlace(queue, p); err != nil {
		return driver.Place{}, err
	}
	if err := checkPrefix(prefix); err != nil {
		return driver.Place{}, err
	}
	if _, seq, ok := driver.ParseName(p.Name); !ok || seq != p.Seq {
		return driver.Place{}, fmt.Errorf("zkdriver: replace %s: %w: its sequence is not %d", p.Name, driver.ErrBadName, p.Seq)
	}
	return zkconn.Await(ctx, s.conn, func() (driver.Place, error) { return s.replaceNode(queue, p, driver.FormatName(prefix, p.Seq)) }, nil)
}

func (s *session) replaceNode(queue string, p driver.Place, name string) (driver.Place, error) {
	c := s.own.find(queue, p.Token)
	if c == nil {
		return driver.Place{}, fmt.Errorf("zkdriver: replace %s of %s: %w", p.Name, s.settings.queuePath(queue), driver.ErrGone)
	}
	c.busy.Lock()
	defer c.busy.Unlock()
	r := s.own.beginRemoval(queue, s.own.possibleNames(c)...)
	defer s.own.endRemoval(queue, r)
	for range 4 {
		f, err := s.findNode(queue, c.token, s.own.possibleNames(c))
		if errors.Is(err, driver.ErrGone) {
			s.own.forget(c.token)
		}
		if err != nil {
			return driver.Place{}, err
		}
		if f.name != name {
			err = s.swap(queue, c, f, name)
		}
		switch {
		case err == nil:
			s.own.standsUnder(c, name, s.conn.Connection())
			p.Name = name
			return p, nil
		case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion): // it changed since: look again
		default:
			return driver.Place{}, explain(err, "replace", f.path, "CREATE and DELETE on the queue")
		}
	}
	return driver.Place{}, fmt.Errorf("zkdriver: replace %s of %s: %w: the node keeps changing", p.Name, s.settings.queuePath(queue), driver.ErrUnavailable)
}

// swap puts another name in place of the one that was found.
func (s *session) swap(queue string, c *ownNode, f *storedNode, name string) error {
	stored := appendTrailer(f.data, trailer{token: f.token(), created: f.created()})
	s.own.doubt(c, name) // until the answer is there
	_, err := s.conn.Multi(
		&zk.DeleteRequest{Path: f.path, Version: f.stat.Version},
		&zk.CreateRequest{Path: s.settings.queuePath(queue) + "/" + name, Data: stored, Acl: s.contenderACL(), Flags: zk.FlagEphemeral})
	if err != nil && !zkconn.Unanswered(err) {
		s.own.standsUnder(c, f.name, s.conn.Connection()) // refused
	}
	return err
}
