package etcddriver

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

// The methods below build the keys that docs/contribute/other-languages.md
// describes. A double slash ends the queue's name.

// layout is the version of the key format. It changes whenever clients of an
// earlier version could misread a key.
const layout = "1"

func (s *settings) layoutKey() string             { return s.prefix + "//layout" }
func (s *settings) root() string                  { return s.prefix + "/" }
func (s *settings) queueKeys(queue string) string { return s.prefix + "/" + queue + "//" }

// cancelled returns the key that Cancel changes, so that etcd rejects the
// session's earlier Creates.
func (s *settings) cancelled(session clientv3.LeaseID) string {
	return s.prefix + "//cancelled/" + sessionName(session)
}

func (s *settings) valueKey(queue string) string { return s.prefix + "//kept/" + queue }

// valueToken formats the token that precedes a value. Its fixed length makes
// values compare by their tokens.
func valueToken(token int64) string { return fmt.Sprintf("%016x", token) }

// released returns the key that announces a release. It sorts before the nodes'
// keys, so that one watch covers all.
func (s *settings) released(queue string) string { return s.prefix + "/" + queue + "/.released" }

// nodeID returns the last part of a node's key: session and number.
func nodeID(session clientv3.LeaseID, n int64) string {
	return sessionName(session) + ":" + strconv.FormatInt(n, 10)
}

func isNodeID(text string) bool {
	session, n, found := strings.Cut(text, ":")
	return found && len(session) == 16 && n != "" && !strings.ContainsFunc(session, notHex) && !strings.ContainsFunc(n, notDigit)
}

func notDigit(c rune) bool { return c < '0' || c > '9' }
func notHex(c rune) bool   { return notDigit(c) && (c < 'a' || c > 'f') }

func nodeValue(prefix string, data []byte) string { return prefix + "\n" + string(data) }

type member struct {
	driver.Place
	id      string // last part of the key
	created int64  // the key's create revision
	session clientv3.LeaseID
	data    []byte
}

// proof returns a node's proof, which only clients with write permission could
// fake in an event.
func (m member) proof() string { return strconv.FormatInt(m.created, 10) }

// parseNode parses a node's key and value. It returns false for other keys,
// which any program may write.
func parseNode(queueKeys string, kv *mvccpb.KeyValue) (m member, ok bool) {
	m = member{id: string(kv.Key[len(queueKeys):]), created: kv.CreateRevision, session: clientv3.LeaseID(kv.Lease)}
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

// foreignNode parses the end of a key as the name of another program's node.
func foreignNode(name string) (n driver.Node, ok bool) {
	if strings.Contains(name, "/") {
		return n, false
	}
	_, seq, ok := driver.ParseName(name)
	return driver.Node{Name: name, Seq: seq}, ok
}

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

// nodesOf gives tokens only to this session's nodes, because a restored backup
// may repeat tokens.
func (b *backend) nodesOf(members []member) (nodes []session.Node) {
	for _, m := range members {
		n := session.Node{Name: m.Name, Proof: m.proof()}
		if m.session == b.id {
			n.Token = m.Token
		}
		nodes = append(nodes, n)
	}
	return nodes
}

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
