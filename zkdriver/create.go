package zkdriver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// maxData is the maximum size of a node's data in bytes. The rest of the
// server's default jute.maxbuffer is for path, ACL and trailer.
const maxData = 1<<20 - 1 - 8<<10

// Create implements driver.Session. Usually it takes one request,
//
//	multi(create prefix, ephemeral and sequential; setData of the queue's node, empty)
//
// The write to the queue's node is sent only for its answer, a Stat whose Mzxid
// is the zxid of the transaction. That zxid serves as the fencing token, and
// ZooKeeper does not return it for the create itself.
func (s *session) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	if err := s.checkCreate(queue, n); err != nil {
		return driver.Joined{}, err
	}
	n.Data = withTrailer(n.Data, s.secret.exists())
	n, err := s.settings.layout.spec(n)
	if err != nil {
		return driver.Joined{}, err
	}
	made, err := zkconn.Await(ctx, s.conn,
		func() (madeNode, error) {
			made, err := s.createCurrent(queue, n)
			if err == nil && s.settings.layout != nil {
				err = s.checkLayout(&made, n.Data)
			}
			return made, err
		},
		func(made madeNode, err error) {
			if err == nil {
				s.discard(made.queue, made.Place, n.Data)
			}
		})
	made.Name = s.settings.layout.shown(made.Name)
	made.Ahead = s.settings.layout.shownNodes(made.Ahead)
	return made.Joined, err
}

type madeNode struct {
	driver.Joined
	queue string
}

func (s *session) createCurrent(queue string, n driver.NodeSpec) (madeNode, error) {
	for range 5 {
		in, epoch := s.queues.current(queue)
		j, err := s.createNode(in, n)
		switch {
		case errors.Is(err, errMoved), errors.Is(err, errNoSuccessor): // the contenders have moved: retry there
		case err == nil && in != queue && j.Epoch != epoch:
			s.queues.moved.Delete(queue)
			if err := s.discard(in, j.Place, n.Data); err != nil {
				return madeNode{}, err
			}
		default:
			return madeNode{j, in}, err
		}
	}
	return madeNode{}, s.vanished(queue)
}

func (s *session) checkCreate(queue string, n driver.NodeSpec) error {
	if err := s.settings.checkQueue(queue); err != nil {
		return err
	}
	if err := checkPrefix(n.Prefix); err != nil {
		return err
	}
	if len(n.Data) > maxData {
		return fmt.Errorf("zkdriver: create a node in %s: %d bytes of data are more than the %d that fit a request (jute.maxbuffer)",
			s.settings.queuePath(queue), len(n.Data), maxData)
	}
	return nil
}

// createNode tries several times, because the queue may be removed meanwhile.
func (s *session) createNode(queue string, n driver.NodeSpec) (driver.Joined, error) {
	for range 5 {
		info, err := s.prepareQueue(queue)
		if err != nil {
			return driver.Joined{}, err
		}
		if info.mode == draining {
			if err := s.rollOver(queue, info.epoch); err != nil {
				return driver.Joined{}, err
			}
			continue
		}
		j, aclVersion, err := s.createOnce(queue, n, info.mode)
		switch {
		case err == nil && s.pastEnd(n.Prefix, j.Place):
			s.queues.set(queue, queueInfo{mode: draining, epoch: j.Epoch})
			if err := s.discard(queue, j.Place, n.Data); err != nil {
				return driver.Joined{}, err
			}
		case err == nil && s.settings.checksACLs() && (j.Epoch != info.epoch || aclVersion != info.aclVersion):
			s.queues.drop(queue) // changed since this session checked its ACL
			if err := s.discard(queue, j.Place, n.Data); err != nil {
				return driver.Joined{}, err
			}
		case err == nil:
			if err := s.conn.CountFromWrite(); err != nil {
				s.discard(queue, j.Place, n.Data)
				return driver.Joined{}, explain(err, "create a node in", s.settings.queuePath(queue), "")
			}
			return j, nil
		case errors.Is(err, errRemovedWithOther): // retry
		case errors.Is(err, zk.ErrNoNode):
			s.queues.drop(queue)
		case errors.Is(err, errMayNotWrite):
			info.mode = withoutWrite
			s.queues.set(queue, info)
		default:
			return driver.Joined{}, explain(err, "create a node in", s.settings.queuePath(queue), "CREATE on it")
		}
	}
	return driver.Joined{}, s.vanished(queue)
}

func (s *session) createOnce(queue string, n driver.NodeSpec, mode createMode) (j driver.Joined, aclVersion int32, err error) {
	c := s.own.beginCreation(queue)
	if mode == withWrite {
		j, aclVersion, err = s.createWithWrite(queue, n)
	} else {
		j, aclVersion, err = s.createWithoutWrite(queue, n)
	}
	if err == nil {
		s.queues.aclSeen(queue, j.Epoch, aclVersion)
		s.own.add(queue, j.Place, s.conn.Connection())
	}
	wait, met := s.own.endCreation(queue, c, j.Name)
	if err != nil || !met {
		return j, aclVersion, err
	}
	err = s.stillExists(queue, j.Place, wait)
	switch {
	case errors.Is(err, driver.ErrGone):
		s.own.forget(j.Token)
		err = errRemovedWithOther
	case err != nil:
		s.discard(queue, j.Place, n.Data)
	}
	return j, aclVersion, err
}

// errRemovedWithOther reports that an earlier node's removal has hit the new
// node: see inFlight.
var errRemovedWithOther = errors.New("zkdriver: the node was removed together with an earlier one of its name")

var errMayNotWrite = errors.New("zkdriver: no WRITE on the queue's node")

func (s *session) createWithWrite(queue string, n driver.NodeSpec) (j driver.Joined, aclVersion int32, err error) {
	path := s.settings.queuePath(queue)
	where := search{n.Prefix, s.orphans.lastNode(queue)}
	var list *prefetch
	if s.queues.get(queue).shared {
		list = s.prefetch(queue, n.Data)
	}
	results, err := s.conn.Multi(
		&zk.CreateRequest{Path: path + "/" + n.Prefix, Data: n.Data, Acl: s.settings.contenderACL(s.secret), Flags: zk.FlagEphemeralSequential},
		&zk.SetDataRequest{Path: path, Data: []byte{}, Version: -1})
	if list != nil && list.cancel() {
		list = nil // neither the create nor the list was sent
	}
	if err != nil {
		if len(results) == 2 && results[0].Error == nil && errors.Is(results[1].Error, zk.ErrNoAuth) {
			return driver.Joined{}, 0, errMayNotWrite
		}
		if zkconn.Unanswered(err) {
			s.addOrphan(queue, n.Data, where)
		}
		return driver.Joined{}, 0, err
	}
	if len(results) != 2 || results[1].Stat == nil {
		s.addOrphan(queue, n.Data, where)
		return driver.Joined{}, 0, errors.New("an answer of the wrong shape")
	}
	stat := results[1].Stat
	j.Node, j.Token = nodeAt(results[0].String, len(path), stat.Czxid), stat.Mzxid
	j.Created = time.UnixMilli(stat.Mtime)
	s.orphans.noteCreated(queue, j.Node)
	if j.Known = stat.NumChildren == 1; j.Known {
		s.queues.noteShared(queue, false)
	} else if list != nil {
		j.Ahead, j.Behind, j.Known = s.prefetched(list, j.Node)
		s.queues.noteShared(queue, len(j.Ahead) > 0)
	}
	return j, stat.Aversion, nil
}

// prefetch is a list requested right behind a create, which saves a round trip.
type prefetch struct {
	cancel func() bool // returns false if it is too late
	done   chan struct{}
	nodes  []driver.Node // valid once done is closed; nil after errors
}

func (s *session) prefetch(queue string, data []byte) *prefetch {
	p := &prefetch{done: make(chan struct{})}
	p.cancel = s.conn.AfterSend(data, func() {
		s.conn.Go(func() { // does not run if the session has ended
			defer close(p.done)
			p.nodes, _ = s.listNodes(queue)
		})
	})
	return p
}

// prefetched waits for the list. If it lacks the new node n, known is false.
func (s *session) prefetched(p *prefetch, n driver.Node) (ahead []driver.Node, behind, known bool) {
	select {
	case <-p.done:
	case <-s.Done():
		return nil, false, false
	}
	i := slices.Index(p.nodes, n)
	if i < 0 {
		return nil, false, false
	}
	return p.nodes[:i], i < len(p.nodes)-1, true
}

func (s *session) createWithoutWrite(queue string, n driver.NodeSpec) (j driver.Joined, aclVersion int32, err error) {
	path := s.settings.queuePath(queue)
	where := search{n.Prefix, s.orphans.lastNode(queue)}
	made, err := s.conn.Create(path+"/"+n.Prefix, n.Data, zk.FlagEphemeralSequential, s.settings.contenderACL(s.secret))
	if err != nil {
		if zkconn.Unanswered(err) {
			s.addOrphan(queue, n.Data, where)
		}
		return driver.Joined{}, 0, err
	}
	// Read the Stat first. If the node then still exists, the Stat belongs to its
	// queue, because a queue with nodes cannot be removed.
	parent, err := s.conn.Stat(path)
	var stat *zk.Stat
	if err == nil {
		var found []byte
		found, stat, err = s.conn.Get(made)
		if err == nil && (string(found) != string(n.Data) || stat.EphemeralOwner != s.conn.SessionID()) {
			// The node is gone, and another session's node has its name.
			err = zk.ErrNoNode
		}
	}
	if err != nil {
		s.addOrphan(queue, n.Data, where)
		if errors.Is(err, zk.ErrNoNode) {
			return driver.Joined{}, 0, s.vanished(queue)
		}
		return driver.Joined{}, 0, explain(err, "look at", made, "READ on it")
	}
	node := nodeAt(made, len(path), parent.Czxid)
	s.orphans.noteCreated(queue, node)
	j.Place, j.Created = driver.Place{Node: node, Token: stat.Czxid}, time.UnixMilli(stat.Ctime)
	return j, parent.Aversion, nil
}

func nodeAt(path string, queueLength int, epoch int64) driver.Node {
	name := path[min(queueLength+1, len(path)):]
	seq, ok := sequenceOf(name)
	if !ok {
		seq = -1
	}
	return driver.Node{Name: name, Seq: seq, Epoch: epoch}
}

// pastEnd also recognizes the negative sequences of servers before 3.5, whose
// minus joins the prefix.
func (s *session) pastEnd(prefix string, p driver.Place) bool {
	return p.Seq < 0 || p.Seq >= s.settings.sequenceLimit || p.Name != driver.FormatName(prefix, p.Seq)
}

// discard removes a node that Create will not return. After an error, Create
// must not retry, because a search for orphans would remove both nodes.
func (s *session) discard(queue string, p driver.Place, data []byte) error {
	err := s.deleteNode(queue, p, s.removeAny)
	s.own.forget(p.Token)
	if err == nil || errors.Is(err, driver.ErrGone) {
		return nil
	}
	prefix, _, _ := splitName(p.Name)
	s.addOrphan(queue, data, search{prefix: prefix})
	return err
}
