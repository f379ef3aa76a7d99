package etcddriver

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/driver"
)

// The keys, whose layout the package documentation describes. A queue's name has no
// empty segment, so two slashes end it.

func (s *settings) root() string                  { return s.prefix + "/" }
func (s *settings) queueKeys(queue string) string { return s.prefix + "/" + queue + "//" }

// cancelled returns the key that cancels a session's n-th call of Create.
func (s *settings) cancelled(session clientv3.LeaseID, n int64) string {
	return s.prefix + "//cancelled/" + nodeID(session, n)
}

// released returns the key that tells of the release of a lock. It stands right before
// the keys of the queue, so that one watch shows both, and a list of the queue leaves
// it out.
func (s *settings) released(queue string) string { return s.prefix + "/" + queue + "/.released" }

// watched returns the range of keys that a watch of the queue needs: the key of
// released, and the keys of the queue. The key to is not in the range.
func (s *settings) watched(queue string) (from, to string) {
	return s.released(queue), clientv3.GetPrefixRangeEnd(s.queueKeys(queue))
}

// nodeID returns the last part of the key of a session's node with that number.
func nodeID(session clientv3.LeaseID, n int64) string {
	return sessionName(session) + ":" + strconv.FormatInt(n, 10)
}

// isNodeID reports whether nodeID could have returned the text.
func isNodeID(text string) bool {
	session, n, found := strings.Cut(text, ":")
	return found && len(session) == 16 && n != "" && !strings.ContainsFunc(session, notHex) && !strings.ContainsFunc(n, notDigit)
}

func notDigit(c rune) bool { return c < '0' || c > '9' }
func notHex(c rune) bool   { return notDigit(c) && (c < 'a' || c > 'f') }

// nodeValue returns the value of a node's key.
func nodeValue(prefix string, data []byte) string { return prefix + "\n" + string(data) }

// member is a node of a queue with its key.
type member struct {
	driver.Place
	id      string // the last part of the key
	session clientv3.LeaseID
	data    []byte
}

// parseNode reads a node of a queue from a key. It reports false for a key that is
// no node.
func parseNode(queueKeys string, kv *mvccpb.KeyValue) (m member, ok bool) {
	m = member{id: string(kv.Key[len(queueKeys):]), session: clientv3.LeaseID(kv.Lease)}
	if isNodeID(m.id) {
		prefix, data, found := bytes.Cut(kv.Value, []byte{'\n'})
		if !found || driver.CheckPrefix(string(prefix)) != nil {
			return m, false
		}
		m.data, m.Token = data, kv.CreateRevision
		m.Node = nodeOf(string(prefix), kv.CreateRevision)
		return m, true
	}
	m.data = kv.Value
	m.Node, ok = foreignNode(m.id)
	return m, ok
}

func nodeOf(prefix string, revision int64) driver.Node {
	return driver.Node{Name: driver.FormatName(prefix, revision), Seq: revision}
}

// foreignNode reads the node of another program, whose name is in the key.
func foreignNode(name string) (n driver.Node, ok bool) {
	if strings.Contains(name, "/") {
		return n, false
	}
	_, seq, ok := driver.ParseName(name)
	return driver.Node{Name: name, Seq: seq}, ok
}

// parseQueue returns the nodes among the keys, oldest first.
func parseQueue(queueKeys string, kvs []*mvccpb.KeyValue) (members []member) {
	for _, kv := range kvs {
		if m, ok := parseNode(queueKeys, kv); ok {
			members = append(members, m)
		}
	}
	slices.SortStableFunc(members, func(a, b member) int {
		return int(min(max(a.Seq-b.Seq, -1), 1))
	})
	return members
}

func nodesOf(members []member) (nodes []driver.Node) {
	for _, m := range members {
		nodes = append(nodes, m.Node)
	}
	return nodes
}

// queueOf returns the queue to which the key of a node belongs.
func (s *settings) queueOf(key string) (queue string, ok bool) {
	rest, ok := strings.CutPrefix(key, s.root())
	if !ok {
		return "", false
	}
	queue, id, ok := strings.Cut(rest, "//")
	if !ok || queue == "" {
		return "", false
	}
	_, foreign := foreignNode(id)
	return queue, foreign || isNodeID(id)
}
