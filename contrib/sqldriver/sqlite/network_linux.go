package sqlite

import "syscall"

// networkFileSystem returns the name of the network file system that holds a
// directory, or an empty string. The numbers are those of statfs(2).
func networkFileSystem(dir string) string {
	var st syscall.Statfs_t
	if syscall.Statfs(dir, &st) != nil {
		return ""
	}
	return networkFileSystems[uint32(st.Type)]
}

var networkFileSystems = map[uint32]string{
	0x6969: "NFS", 0x517b: "SMB", 0xff534d42: "CIFS", 0xfe534d42: "SMB2",
	0x5346414f: "AFS", 0x00c36400: "Ceph", 0x0bd00bd0: "Lustre", 0x01161970: "GFS2",
}
