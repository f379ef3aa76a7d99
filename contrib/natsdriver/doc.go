// Package natsdriver stores locks in NATS JetStream.
package natsdriver
