package work

import (
	"errors"

	"github.com/go-zookeeper/zk"
)

// bareRequests sends the two requests that every lock with a queue needs, as a
// lower bound. It does not exclude anyone, so a plan may have only one
// contender.
func bareRequests(p Plan) (session, error) {
	conn, err := connect(p)
	if err != nil {
		return nil, err
	}
	_, err = conn.CreateContainer("/bench", nil, zk.FlagContainer, zk.WorldACL(zk.PermAll))
	if err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return nil, err
	}
	_, err = conn.CreateContainer(p.Path, nil, zk.FlagContainer, zk.WorldACL(zk.PermAll))
	return bareSession{conn}, err
}

type bareSession struct{ conn *zk.Conn }

func (s bareSession) contender(path string) (contender, error) {
	return &bareContender{conn: s.conn, path: path}, nil
}

func (s bareSession) close() error { s.conn.Close(); return nil }

type bareContender struct {
	conn       *zk.Conn
	path, made string
}

func (c *bareContender) lock() error {
	made, err := c.conn.Multi(
		&zk.CreateRequest{Path: c.path + "/n-", Data: []byte{}, Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagEphemeralSequential},
		&zk.SetDataRequest{Path: c.path, Data: []byte{}, Version: -1})
	if err != nil {
		return err
	}
	c.made = made[0].String
	return nil
}

func (c *bareContender) unlock() error { return c.conn.Delete(c.made, -1) }
