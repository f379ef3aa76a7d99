package zkdriver

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// Replace implements driver.Session, with
//
//	multi(delete the old name; create the new name, ephemeral, with the same data)
//
// The new node has its own Czxid, so its trailer records the token.
func (s *session) Replace(ctx context.Context, queue string, p driver.Place, prefix string) (driver.Place, error) {
	if err := s.settings.checkPlace(queue, p); err != nil {
		return driver.Place{}, err
	}
	if err := checkPrefix(prefix); err != nil {
		return driver.Place{}, err
	}
	prefix, err := s.settings.layout.prefix(prefix)
	if err != nil {
		return driver.Place{}, err
	}
	p.Name = s.settings.layout.stored(p.Name)
	if seq, ok := sequenceOf(p.Name); !ok || seq != p.Seq {
		return driver.Place{}, fmt.Errorf("zkdriver: replace %s: %w: its sequence is not %d", p.Name, driver.ErrBadName, p.Seq)
	}
	name := driver.FormatName(prefix, p.Seq)
	renamed, err := zkconn.Await(ctx, s.conn, func() (driver.Place, error) { return s.replaceNode(s.queueOf(queue, p), p, name) }, nil)
	renamed.Name = s.settings.layout.shown(renamed.Name)
	return renamed, err
}

func (s *session) replaceNode(queue string, p driver.Place, name string) (driver.Place, error) {
	own := s.own.find(queue, p.Token)
	if own == nil {
		return driver.Place{}, fmt.Errorf("zkdriver: replace %s of %s: %w", p.Name, s.settings.queuePath(queue), driver.ErrGone)
	}
	own.busy.Lock()
	defer own.busy.Unlock()
	r := s.own.beginRemoval(queue, s.own.possibleNames(own)...)
	defer s.own.endRemoval(queue, r)
	for range 4 {
		n, err := s.findNode(queue, own.token, s.own.possibleNames(own))
		if errors.Is(err, driver.ErrGone) {
			s.own.forget(own.token)
		}
		if err != nil {
			return driver.Place{}, err
		}
		if n.name != name {
			err = s.swap(queue, own, n, name)
		}
		switch {
		case err == nil:
			s.own.seenAs(own, name, s.conn.Connection())
			p.Name = name
			return p, nil
		// The node has changed since it was read; try again.
		case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion):
		default:
			return driver.Place{}, explain(err, "replace", n.path, "CREATE and DELETE on the queue")
		}
	}
	return driver.Place{}, fmt.Errorf("zkdriver: replace %s of %s: %w: the node keeps changing", p.Name, s.settings.queuePath(queue), driver.ErrUnavailable)
}

func (s *session) swap(queue string, own *ownNode, n *storedNode, name string) error {
	stored := appendTrailer(n.data, trailer{token: n.token(), created: n.created()})
	s.own.doubt(own, name) // the node may have either name until this is answered
	_, err := s.conn.Multi(
		&zk.DeleteRequest{Path: n.path, Version: n.stat.Version},
		&zk.CreateRequest{Path: s.settings.queuePath(queue) + "/" + name, Data: stored, Acl: s.settings.contenderACL(s.secret), Flags: zk.FlagEphemeral})
	if err != nil && !zkconn.Unanswered(err) {
		s.own.seenAs(own, n.name, s.conn.Connection()) // the server has refused the transaction, so the node has its old name
	}
	return err
}
