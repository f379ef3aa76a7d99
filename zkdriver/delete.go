package zkdriver

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// Delete implements driver.Session, usually with one request. If another
// session's node may have the name by now, Delete reads the node first. A wrong
// node is removed only if an operator removes the queue after that read, or
// soon after the grant (see mayRemoveUnread), and a client on this host reuses
// the name.
//
// For Released, a session with a secret first writes to the node.
func (s *session) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	if err := s.settings.checkPlace(queue, p); err != nil {
		return err
	}
	p.Name = s.settings.layout.stored(p.Name)
	remove := s.removeAny
	if why == driver.Released && s.secret.exists() {
		remove = func(path string) error {
			_, err := s.conn.Multi(&zk.SetDataRequest{Path: path, Data: []byte{}, Version: -1}, &zk.DeleteRequest{Path: path, Version: -1})
			return err
		}
	}
	return zkconn.AwaitErr(ctx, s.conn, func() error { return s.deleteNode(s.queueOf(queue, p), p, remove) })
}

func (s *session) queueOf(queue string, p driver.Place) string {
	in, _ := s.queues.current(queue)
	if in != queue && s.own.find(queue, p.Token) != nil {
		return queue
	}
	return in
}

func (s *session) removeAny(path string) error { return s.conn.Delete(path, -1) }

// deleteNode reads the node first unless its removal by name is safe.
func (s *session) deleteNode(queue string, p driver.Place, remove func(path string) error) error {
	n := s.own.find(queue, p.Token)
	if n == nil {
		return s.deleteChecked(queue, p.Token, []string{p.Name})
	}
	n.busy.Lock()
	defer n.busy.Unlock()
	if !s.mayRemoveUnread(queue, n) {
		return s.deleteDoubtful(queue, n)
	}
	name, r := s.own.beginPlainRemoval(n, s.conn.Connection())
	if r == nil {
		return s.deleteDoubtful(queue, n)
	}
	path := s.settings.queuePath(queue) + "/" + name
	err := remove(path)
	s.own.endRemoval(queue, r)
	switch {
	case err == nil:
		s.own.forget(n.token)
		return s.removedOtherNode(queue, n.token, name, r)
	case errors.Is(err, zk.ErrNoNode):
		s.own.forget(n.token)
	case errors.Is(err, zk.ErrNoAuth) && s.secret.exists(): // another session's node, or no DELETE permission
		return s.deleteDoubtful(queue, n)
	case !zkconn.Unanswered(err):
		s.own.seenAs(n, name, s.conn.Connection()) // the server refused, so the node exists
	}
	return explain(err, "delete", path, "DELETE on the queue")
}

// mayRemoveUnread reports whether this session may remove its node by name
// without reading it first. After an operator has removed the queue, another
// session's node may have that name. With a secret, the server refuses the
// write that begins a release of that node. A removal for another cause has no
// write. It is safe from 0.3 s after the grant on, because the holder's watch
// then reports a removed queue. Without a secret, an open watch must show that
// the node still exists.
func (s *session) mayRemoveUnread(queue string, n *ownNode) bool {
	if s.secret.exists() {
		return true
	}
	names := s.own.possibleNames(n)
	return len(names) == 1 && s.watches.covers(s.settings.queuePath(queue)+"/"+names[0], n.token)
}

func (s *session) deleteDoubtful(queue string, n *ownNode) error {
	err := s.deleteChecked(queue, n.token, s.own.possibleNames(n))
	if err == nil || errors.Is(err, driver.ErrGone) {
		s.own.forget(n.token)
	}
	return err
}

// deleteChecked reads the named nodes and removes the one with the given token.
func (s *session) deleteChecked(queue string, token int64, names []string) error {
	for range 4 {
		done, err := s.readAndDelete(queue, token, names)
		if done || err != nil {
			return err
		} // changed since it was read: read it again
	}
	return fmt.Errorf("zkdriver: delete %s: %w: the node keeps changing", s.settings.queuePath(queue), driver.ErrUnavailable)
}

// readAndDelete returns false if the node changed between read and removal.
func (s *session) readAndDelete(queue string, token int64, names []string) (done bool, err error) {
	r := s.own.beginRemoval(queue, names...)
	ended := false
	end := func() {
		if !ended {
			ended = true
			s.own.endRemoval(queue, r)
		}
	}
	defer end()
	n, err := s.findNode(queue, token, names)
	if err != nil {
		return false, err
	}
	err = s.conn.Delete(n.path, n.stat.Version)
	end()
	switch {
	case err == nil:
		return true, s.removedOtherNode(queue, token, n.name, r)
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion):
		return false, nil
	}
	return false, explain(err, "delete", n.path, "DELETE on the queue")
}

// Remove implements driver.Inspector. It reads the node, compares the token,
// and deletes only that version. It removes another node only if an operator
// removes the queue between these requests, and a client on the node's host
// reuses the name. Waiters do not take the removal for a release.
func (s *session) Remove(ctx context.Context, queue string, p driver.Place) error {
	if err := s.settings.checkPlace(queue, p); err != nil {
		return err
	}
	p.Name = s.settings.layout.stored(p.Name)
	return zkconn.AwaitErr(ctx, s.conn, func() error { return s.removeNode(s.queueOf(queue, p), p) })
}

func (s *session) removeNode(queue string, p driver.Place) error {
	path := s.settings.queuePath(queue) + "/" + p.Name
	for range 4 {
		n, err := s.readStored(queue, p.Name)
		switch {
		case err != nil:
			return explain(err, "look at", path, "READ on it")
		case n.token() != p.Token:
			return fmt.Errorf("zkdriver: remove %s: the node of that name has the token %d instead of %d: %w", zkconn.Printable(path), n.token(), p.Token, driver.ErrGone)
		case n.mine:
			return s.deleteNode(queue, p, s.removeAny)
		}
		r := s.own.beginRemoval(queue, p.Name)
		err = s.conn.Delete(path, n.stat.Version)
		s.own.endRemoval(queue, r)
		switch {
		case err == nil:
			return s.removedOtherNode(queue, p.Token, p.Name, r)
		case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion): // changed since it was read: read it again
		default:
			return explain(err, "remove", path, "DELETE on the queue")
		}
	}
	return fmt.Errorf("zkdriver: remove %s: %w: the node keeps changing", zkconn.Printable(path), driver.ErrUnavailable)
}

// Replace implements driver.Session, with
//
//	multi(delete the old name; create the new name, ephemeral, with the same data)
//
// The token is the Czxid of the node that Create made. The new node has another
// Czxid, so its trailer records the token.
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
	s.own.doubt(own, name) // until the answer, either name is possible
	_, err := s.conn.Multi(
		&zk.DeleteRequest{Path: n.path, Version: n.stat.Version},
		&zk.CreateRequest{Path: s.settings.queuePath(queue) + "/" + name, Data: stored, Acl: s.settings.contenderACL(s.secret), Flags: zk.FlagEphemeral})
	if err != nil && !zkconn.Unanswered(err) {
		s.own.seenAs(own, n.name, s.conn.Connection()) // refused, so the node has its old name
	}
	return err
}
