package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/dlock-go/dlock/internal/testenv"
)

// ensemble is a ZooKeeper ensemble with the timing of a default installation.
// Clients get all addresses, and their library chooses a server for each
// session.
type ensemble struct{ members []*zooKeeper }

// startEnsemble starts n servers and waits until each of them answers clients,
// which implies that they have formed a quorum.
func startEnsemble(n int) (*ensemble, error) {
	config, err := ensembleConfig(n)
	if err != nil {
		return nil, err
	}
	members := make([]*zooKeeper, n)
	errs := make([]error, n)
	var starting sync.WaitGroup
	for i := range n {
		starting.Go(func() { members[i], errs[i] = startZooKeeper(config[i]) })
	}
	starting.Wait()
	e := &ensemble{}
	for _, m := range members {
		if m != nil {
			e.members = append(e.members, m)
		}
	}
	if err := errors.Join(errs...); err != nil {
		e.stop()
		return nil, err
	}
	return e, nil
}

// ensembleConfig returns the configuration lines, one map for each server, that
// make n servers an ensemble. initLimit and syncLimit are those of ZooKeeper's
// sample configuration.
func ensembleConfig(n int) (config []map[string]string, err error) {
	lines := make([]string, n)
	for i := range lines {
		quorum, err := testenv.FreePort()
		if err != nil {
			return nil, err
		}
		election, err := testenv.FreePort()
		if err != nil {
			return nil, err
		}
		lines[i] = fmt.Sprintf("127.0.0.1:%d:%d", quorum, election)
	}
	for i := range n {
		c := map[string]string{"myid": strconv.Itoa(i + 1), "initLimit": "10", "syncLimit": "5"}
		for j, line := range lines {
			c[fmt.Sprintf("server.%d", j+1)] = line
		}
		config = append(config, c)
	}
	return config, nil
}

func (e *ensemble) addr() string {
	return strings.Join(mapped(e.members, (*zooKeeper).addr), ",")
}

func (e *ensemble) read() (counters, error) {
	var list []counters
	for _, m := range e.members {
		c, err := m.read()
		if err != nil {
			return counters{}, err
		}
		list = append(list, c)
	}
	return sumOfMembers(list), nil
}

func (e *ensemble) readCost() counters {
	return sumOfMembers(mapped(e.members, (*zooKeeper).readCost))
}

func (e *ensemble) stop() {
	var stopping sync.WaitGroup
	for _, m := range e.members {
		stopping.Go(m.stop)
	}
	stopping.Wait()
}

// sumOfMembers adds up the members' counters, each of which covers the member's
// own clients. The number of contenders is the minimum instead of the sum,
// because every member knows all nodes.
func sumOfMembers(list []counters) (sum counters) {
	sum.contenders = list[0].contenders
	for _, c := range list {
		sum.received += c.received
		sum.sent += c.sent
		sum.bytesIn += c.bytesIn
		sum.bytesOut += c.bytesOut
		sum.watchers += c.watchers
		sum.contenders = min(sum.contenders, c.contenders)
	}
	return sum
}
