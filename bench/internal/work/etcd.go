package work

import (
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// etcdMutex returns etcd's concurrency.Mutex. The contenders of a session share
// its client, but each has its own concurrency.Session (a lease), because
// mutexes with the same lease do not exclude each other.
func etcdMutex(p Plan) (session, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{p.Server},
		DialTimeout: 10 * time.Second,
		Logger:      zap.NewNop(),
	})
	if err != nil {
		return nil, err
	}
	return &etcdSession{client: client, ttl: p.Timeout}, nil
}

type etcdSession struct {
	client *clientv3.Client
	ttl    int
	leases []*concurrency.Session
}

func (s *etcdSession) contender(path string) (contender, error) {
	lease, err := concurrency.NewSession(s.client, concurrency.WithTTL(s.ttl))
	if err != nil {
		return nil, err
	}
	s.leases = append(s.leases, lease)
	return etcdContender{concurrency.NewMutex(lease, path)}, nil
}

func (s *etcdSession) close() error {
	var errs []error
	for _, lease := range s.leases {
		errs = append(errs, lease.Close())
	}
	return errors.Join(append(errs, s.client.Close())...)
}

type etcdContender struct{ m *concurrency.Mutex }

func (c etcdContender) lock() error   { return c.m.Lock(background) }
func (c etcdContender) unlock() error { return c.m.Unlock(background) }

func (c etcdContender) tryLock() (bool, error) {
	err := c.m.TryLock(background)
	if errors.Is(err, concurrency.ErrLocked) {
		return false, nil
	}
	return err == nil, err
}
