// The program redsync is the middle step of a move from redsync to dlock. It
// takes redsync's lock and then dlock's, so that it excludes both the programs
// that take only redsync's and those that take only dlock's.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/contrib/redisdriver"
)

func main() {
	server := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer server.Close()
	l, err := open(server, redisdriver.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer l.client.Close()
	err = l.withLock(context.Background(), "stock/42", func(ctx context.Context, lock *dlock.Lock) error {
		fmt.Println("shipping with token", lock.Token())
		return ctx.Err()
	})
	if err != nil {
		log.Print(err)
	}
}

// expiry is how long redsync's lock lasts: longer than the work takes.
const expiry = time.Minute

type locker struct {
	old    *redsync.Redsync
	client *dlock.Client
	expiry time.Duration
}

// open uses one Redis client for redsync and for dlock.
func open(server redis.UniversalClient, options redisdriver.Options) (*locker, error) {
	connector, err := redisdriver.NewConnector(server, options)
	if err != nil {
		return nil, err
	}
	client := dlock.NewClient(connector, dlock.WithTimeout(30*time.Second))
	return &locker{redsync.New(goredis.NewPool(server)), client, expiry}, nil
}

// withLock runs f under both locks. The context of f ends when one of them is lost.
func (l *locker) withLock(ctx context.Context, name string, f func(context.Context, *dlock.Lock) error) (err error) {
	old := l.old.NewMutex(name, redsync.WithExpiry(l.expiry))
	if err := old.LockContext(ctx); err != nil {
		return err
	}
	defer func() {
		_, unlocking := old.UnlockContext(context.WithoutCancel(ctx))
		err = errors.Join(err, unlocking)
	}()
	work, cancel := context.WithDeadline(ctx, old.Until()) // redsync's lock may be lost then
	defer cancel()
	return l.client.RWMutex(name).WithLock(work, f)
}
