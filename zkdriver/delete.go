package zkdriver

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// Delete implements driver.Session. The first, undoubted Delete of a node is
// one request. Any other looks first whether what stands there is that node: by
// its token and its owner. Between looking and removing there is one round trip,
// in which an operator would have to remove the node and the queue, and this
// host to make both again, for the wrong one to be hit.
//
// The release of a node that need not be looked at begins with a write, which is
// what a watch of the node reports. A session without a secret never writes: its
// nodes are not guarded, so no session would believe the write.
func (s *session) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	if err := s.checkPlace(queue, p); err != nil {
		return err
	}
	remove := s.removeAny
	if why == driver.Released && s.secret.set() {
		remove = s.release
	}
	return zkconn.AwaitErr(ctx, s.conn, func() error { return s.deleteNode(queue, p, remove) })
}

func (s *session) removeAny(path string) error { return s.conn.Delete(path, -1) }

func (s *session) release(path string) error {
	_, err := s.conn.Multi(&zk.SetDataRequest{Path: path, Data: []byte{}, Version: -1}, &zk.DeleteRequest{Path: path, Version: -1})
	return err
}

func (s *session) checkPlace(queue string, p driver.Place) error {
	if err := s.settings.checkQueue(queue); err != nil {
		return err
	}
	return checkName(p.Name)
}

func (s *session) deleteNode(queue string, p driver.Place, remove func(path string) error) error {
	c := s.own.find(queue, p.Token)
	if c == nil {
		return s.deleteChecked(queue, p.Token, []string{p.Name})
	}
	c.busy.Lock()
	defer c.busy.Unlock()
	name, r := s.own.beginPlainRemoval(c, s.conn.Connection())
	if r == nil {
		return s.deleteDoubtful(queue, c)
	}
	path := s.settings.queuePath(queue) + "/" + name
	err := remove(path)
	s.own.endRemoval(queue, r)
	switch {
	case err == nil:
		s.own.forget(c.token)
		return s.hitOtherNode(queue, c.token, name, r)
	case errors.Is(err, zk.ErrNoNode):
		s.own.forget(c.token)
	case errors.Is(err, zk.ErrNoAuth) && s.secret.set(): // of another session, or DELETE is missing
		return s.deleteDoubtful(queue, c)
	case !zkconn.Unanswered(err):
		s.own.standsUnder(c, name, s.conn.Connection()) // refused
	}
	return explain(err, "delete", path, "DELETE on the queue")
}

func (s *session) deleteDoubtful(queue string, c *ownNode) error {
	err := s.deleteChecked(queue, c.token, s.own.possibleNames(c))
	if err == nil || errors.Is(err, driver.ErrGone) {
		s.own.forget(c.token)
	}
	return err
}

// deleteChecked removes the node of that token if it stands under one of the names.
func (s *session) deleteChecked(queue string, token int64, names []string) error {
	for range 4 {
		done, err := s.lookAndDelete(queue, token, names)
		if done || err != nil {
			return err
		} // else it changed since: look again
	}
	return fmt.Errorf("zkdriver: delete %s: %w: the node keeps changing", s.settings.queuePath(queue), driver.ErrUnavailable)
}

// lookAndDelete reports false if the node changed between the look and the
// removal.
func (s *session) lookAndDelete(queue string, token int64, names []string) (done bool, err error) {
	r := s.own.beginRemoval(queue, names...)
	ended := false
	end := func() {
		if !ended {
			ended = true
			s.own.endRemoval(queue, r)
		}
	}
	defer end()
	f, err := s.findNode(queue, token, names)
	if err != nil {
		return false, err
	}
	err = s.conn.Delete(f.path, f.stat.Version)
	end()
	switch {
	case err == nil:
		return true, s.hitOtherNode(queue, token, f.name, r)
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion):
		return false, nil
	}
	return false, explain(err, "delete", f.path, "DELETE on the queue")
}

// storedNode is a node as it stands.
type storedNode struct {
	mine       bool // it belongs to this session
	name, path string
	data       []byte // opened
	trailer    trailer
	stat       *zk.Stat
}

// token returns what Create returned to the owner.
func (f *storedNode) token() int64 {
	if f.trailer.token != 0 {
		return f.trailer.token
	}
	return f.stat.Czxid
}

// created returns the time at which the node was made, in milliseconds since 1970.
func (f *storedNode) created() int64 {
	if f.trailer.token != 0 {
		return f.trailer.created
	}
	return f.stat.Ctime
}

// findNode returns this session's node of that token under one of the names;
// the error matches driver.ErrGone if there is none. A node of another session
// is never that node: its data may say any token.
func (s *session) findNode(queue string, token int64, names []string) (*storedNode, error) {
	for _, name := range names {
		f, err := s.readStored(queue, name)
		switch {
		case errors.Is(err, zk.ErrNoNode):
		case err != nil:
			return nil, explain(err, "look at", s.settings.queuePath(queue)+"/"+name, "READ on it")
		case f.mine && f.token() == token:
			return f, nil
		}
	}
	return nil, fmt.Errorf("zkdriver: %s of %s: %w", strings.Join(names, " or "), s.settings.queuePath(queue), driver.ErrGone)
}

func (s *session) readStored(queue, name string) (*storedNode, error) {
	f := &storedNode{name: name, path: s.settings.queuePath(queue) + "/" + name}
	stored, stat, err := s.conn.Get(f.path)
	if err != nil {
		return nil, err
	}
	f.stat, f.mine = stat, stat.EphemeralOwner == s.conn.SessionID()
	f.data, f.trailer, _ = splitTrailer(stored)
	return f, nil
}
