package zkdriver

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/driver"
)

type storedNode struct {
	mine       bool
	name, path string
	data       []byte // as passed to Create, without the trailer
	trailer    trailer
	stat       *zk.Stat
}

func (s *session) newStoredNode(path, name string, stored []byte, stat *zk.Stat) *storedNode {
	n := &storedNode{name: name, path: path, stat: stat, mine: stat.EphemeralOwner == s.conn.SessionID()}
	n.data, n.trailer, _ = splitTrailer(stored)
	return n
}

// token returns the fencing token, which is in the trailer after a Replace.
func (n *storedNode) token() int64 {
	if n.trailer.token != 0 {
		return n.trailer.token
	}
	return n.stat.Czxid
}

// created returns when Create made the node, in milliseconds since 1970.
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

// findNode ignores other sessions' nodes, whose data may claim any token.
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

// stillExists checks that no removal has hit the new node p: see inFlight.
func (s *session) stillExists(queue string, p driver.Place, removals []<-chan struct{}) error {
	for _, ended := range removals {
		<-ended
	}
	path := s.settings.queuePath(queue)
	// A Sync makes a server that does not show the removals yet catch up.
	if err := s.conn.Sync(path); err != nil {
		return explain(err, "look at", path, "READ on it")
	}
	_, err := s.findNode(queue, p.Token, []string{p.Name})
	return err
}

// removedOtherNode fails with driver.ErrGone if a removal has hit another node:
// see inFlight.
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

// The driver records facts about a node in the last line of its data, the
// trailer, as text that operators can read:
//
//	#dlock guarded
//	#dlock token=4294967301 created=1700000000000
//
// The first says that only the node's session can write to the node: see
// acl.go. The second marks a node made by Replace. It has the token and the
// creation time of the node that was replaced.
//
// If the caller's data ends like a trailer, the driver appends a trailer with
// zeros, so that splitTrailer removes only what was appended.

const (
	trailerStart   = "\n#dlock "
	trailerGuarded = "guarded"
)

// trailer leaves the token and the creation time to the Stat if token is zero.
type trailer struct {
	guarded bool
	token   int64
	created int64 // milliseconds since 1970, as in a Stat
}

func withTrailer(data []byte, guarded bool) []byte {
	if _, _, found := splitTrailer(data); found || guarded {
		return appendTrailer(data, trailer{guarded: guarded})
	}
	return data
}

func appendTrailer(data []byte, t trailer) []byte {
	text := t.text()
	return append(append(make([]byte, 0, len(data)+len(text)), data...), text...)
}

func (t trailer) text() string {
	if t.guarded {
		return trailerStart + trailerGuarded
	}
	return fmt.Sprintf("%stoken=%d created=%d", trailerStart, t.token, t.created)
}

func splitTrailer(stored []byte) (data []byte, t trailer, found bool) {
	i := bytes.LastIndex(stored, []byte(trailerStart))
	if i < 0 {
		return stored, trailer{}, false
	}
	text := string(stored[i:])
	if text == trailerStart+trailerGuarded {
		return stored[:i], trailer{guarded: true}, true
	}
	token, created, _ := strings.Cut(strings.TrimPrefix(text, trailerStart+"token="), " created=")
	t.token, _ = strconv.ParseInt(token, 10, 64)
	t.created, _ = strconv.ParseInt(created, 10, 64)
	if t.token < 0 || t.created < 0 || t.text() != text {
		return stored, trailer{}, false
	}
	return stored[:i], t, true
}
