package zkdriver

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/driver"
)

// storedNode is a node as read from the server.
type storedNode struct {
	mine       bool
	name, path string
	data       []byte // as given by the creator, without the trailer
	trailer    trailer
	stat       *zk.Stat
}

func (s *session) newStoredNode(path, name string, stored []byte, stat *zk.Stat) *storedNode {
	n := &storedNode{name: name, path: path, stat: stat, mine: stat.EphemeralOwner == s.conn.SessionID()}
	n.data, n.trailer, _ = splitTrailer(stored)
	return n
}

// token returns the node's fencing token. A node made by Replace keeps the
// token of the node it replaced, in its trailer.
func (n *storedNode) token() int64 {
	if n.trailer.token != 0 {
		return n.trailer.token
	}
	return n.stat.Czxid
}

// created returns the creation time in milliseconds since 1970. Replace does
// not change it.
func (n *storedNode) created() int64 {
	if n.trailer.token != 0 {
		return n.trailer.created
	}
	return n.stat.Ctime
}

func (s *session) readStored(queue, name string) (*storedNode, error) {
	path := s.settings.queuePath(queue) + "/" + name
	stored, stat, err := s.conn.Get(path)
	if err != nil {
		return nil, err
	}
	return s.newStoredNode(path, name, stored, stat), nil
}

// findNode returns this session's node with the token, tried under each name.
// If there is none, the error matches driver.ErrGone. Other sessions' nodes are
// skipped, because their data may claim any token.
func (s *session) findNode(queue string, token int64, names []string) (*storedNode, error) {
	for _, name := range names {
		n, err := s.readStored(queue, name)
		switch {
		case errors.Is(err, zk.ErrNoNode):
		case err != nil:
			return nil, explain(err, "look at", s.settings.queuePath(queue)+"/"+name, "READ on it")
		case n.mine && n.token() == token:
			return n, nil
		}
	}
	return nil, fmt.Errorf("zkdriver: %s of %s: %w", strings.Join(names, " or "), s.settings.queuePath(queue), driver.ErrGone)
}

// stillExists checks that a new node was not hit by a removal meant for an
// earlier node of its name (see inFlight). It waits for those removals first.
// If the node is gone, the error matches driver.ErrGone.
func (s *session) stillExists(queue string, p driver.Place, removals []<-chan struct{}) error {
	for _, ended := range removals {
		<-ended
	}
	path := s.settings.queuePath(queue)
	// The session may have moved to a server that does not show the
	// removals yet. A Sync makes it catch up.
	if err := s.conn.Sync(path); err != nil {
		return explain(err, "look at", path, "READ on it")
	}
	_, err := s.findNode(queue, p.Token, []string{p.Name})
	return err
}

// removedOtherNode checks whether a removal hit another of this session's
// nodes, because a removal names only a path (see inFlight). If so, the
// intended node was already gone, and the error matches driver.ErrGone.
func (s *session) removedOtherNode(queue string, token int64, name string, r *removal) error {
	for _, c := range r.creations {
		if c.ended != nil {
			<-c.ended
		}
	}
	p, there := s.own.otherNodeOfName(queue, name, token)
	if !there {
		return nil
	}
	return s.stillExists(queue, p, nil)
}
