package etcddriver

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/testenv"
)

func ways(b *testing.B) []testenv.Way {
	server := etcdtest.Start(b)
	mutex := func() func() error {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Addr()}, Logger: zap.NewNop()})
		require.NoError(b, err)
		session, err := concurrency.NewSession(client, concurrency.WithTTL(60))
		require.NoError(b, err)
		b.Cleanup(func() { session.Close(); client.Close() })
		m := concurrency.NewMutex(session, "mutex")
		return func() error {
			if err := m.Lock(context.Background()); err != nil {
				return err
			}
			return m.Unlock(context.Background())
		}
	}
	return []testenv.Way{testenv.Dlock(b, "etcd", "etcd://"+server.Addr()+"/bench?session_timeout=60s"), {Name: "Mutex", Contender: mutex}}
}

func BenchmarkFree(b *testing.B) { testenv.Free(b, ways(b)) }

func BenchmarkContended(b *testing.B) { testenv.Contended(b, ways(b)) }
