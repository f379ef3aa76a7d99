// Package natstest configures real NATS servers with JetStream and clusters of
// them for tests, without a NATS client library. See package testenv.
//
// It needs nats-server, which scripts/need-nats.sh builds. Tests without it are
// skipped, with a notice, unless the environment variable DLOCK_TEST_NATS is
// "require", which makes them fail, see [Require].
package natstest
