package main

import "github.com/dlock-go/dlock/internal/etcdtest"

// etcdServer is a single etcd server with default timing and without TLS.
type etcdServer struct {
	*etcdtest.Server
	tb *testingTB
}

func startEtcd() (_ *etcdServer, err error) {
	tb := &testingTB{}
	defer tb.recover(&err)
	return &etcdServer{etcdtest.Start(tb, etcdtest.WithArgs("--heartbeat-interval", "100", "--election-timeout", "1000")), tb}, nil
}

func (s *etcdServer) addr() string { return s.Addr() }
func (s *etcdServer) stop()        { s.tb.cleanUp() }

// readCost returns zero, because reading the counters uses plain HTTP, and only
// gRPC traffic is counted.
func (s *etcdServer) readCost() counters { return counters{} }

// read returns the server's counters. Packets are gRPC messages, including
// those of streams, such as watches and keep-alives.
func (s *etcdServer) read() (c counters, err error) {
	defer (&testingTB{}).recover(&err)
	return counters{
		received: s.Metric("grpc_server_msg_received_total", ""), sent: s.Metric("grpc_server_msg_sent_total", ""),
		bytesIn:    s.Metric("etcd_network_client_grpc_received_bytes_total", ""),
		bytesOut:   s.Metric("etcd_network_client_grpc_sent_bytes_total", ""),
		contenders: s.Metric("etcd_debugging_mvcc_keys_total", ""), watchers: s.Metric("etcd_debugging_mvcc_watcher_total", ""),
	}, nil
}
