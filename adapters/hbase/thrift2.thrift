// What the adapter uses of HBase's Thrift2 service. Names of methods and numbers of fields are facts of the wire.

enum TDeleteType {
  DELETE_COLUMN = 0,
  DELETE_COLUMNS = 1
}

enum TDurability {
  FSYNC_WAL = 4
}

enum TThriftServerType {
  ONE = 1,
  TWO = 2
}

struct TColumn {
  1: required binary family,
  2: optional binary qualifier,
  3: optional i64 timestamp
}

struct TColumnValue {
  1: required binary family,
  2: required binary qualifier,
  3: required binary value,
  4: optional i64 timestamp
}

struct TResult {
  1: optional binary row,
  2: required list<TColumnValue> columnValues
}

struct TGet {
  1: required binary row,
  2: optional list<TColumn> columns
}

struct TPut {
  1: required binary row,
  2: required list<TColumnValue> columnValues,
  5: optional map<binary, binary> attributes
}

struct TDelete {
  1: required binary row,
  2: optional list<TColumn> columns,
  4: optional TDeleteType deleteType
}

struct TScan {
  1: optional binary startRow,
  2: optional binary stopRow,
  3: optional list<TColumn> columns,
  4: optional i32 caching,
  11: optional bool reversed,
  15: optional i32 limit
}

struct TTableName {
  1: optional binary ns,
  2: required binary qualifier
}

struct TColumnFamilyDescriptor {
  1: required binary name,
  3: optional map<string, string> configuration,
  10: optional i32 maxVersions,
  13: optional i32 timeToLive
}

struct TTableDescriptor {
  1: required TTableName tableName,
  2: optional list<TColumnFamilyDescriptor> columns,
  4: optional TDurability durability
}

struct TServerName {
  1: required string hostName,
  2: optional i32 port
}

struct THRegionLocation {
  1: required TServerName serverName
}

exception TIOError {
  1: optional string message,
  2: optional bool canRetry
}

service THBaseService {
  list<TResult> getMultiple(1: required binary table, 2: required list<TGet> tgets) throws (1: TIOError io)

  list<TResult> getScannerResults(
    1: required binary table, 2: required TScan tscan, 3: i32 numRows
  ) throws (1: TIOError io)

  void putMultiple(1: required binary table, 2: required list<TPut> tputs) throws (1: TIOError io)

  list<TDelete> deleteMultiple(1: required binary table, 2: required list<TDelete> tdeletes) throws (1: TIOError io)

  bool checkAndPut(
    1: required binary table,
    2: required binary row,
    3: required binary family,
    4: required binary qualifier,
    5: binary value,
    6: required TPut tput
  ) throws (1: TIOError io)

  bool tableExists(1: TTableName tableName) throws (1: TIOError io)

  bool isTableEnabled(1: required TTableName tableName) throws (1: TIOError io)

  bool isTableDisabled(1: required TTableName tableName) throws (1: TIOError io)

  TTableDescriptor getTableDescriptor(1: required TTableName table) throws (1: TIOError io)

  list<THRegionLocation> getAllRegionLocations(1: required binary table) throws (1: TIOError io)

  void createTable(1: required TTableDescriptor desc, 2: optional list<binary> splitKeys) throws (1: TIOError io)

  void disableTable(1: required TTableName tableName) throws (1: TIOError io)

  void enableTable(1: required TTableName tableName) throws (1: TIOError io)

  void truncateTable(1: required TTableName tableName, 2: required bool preserveSplits) throws (1: TIOError io)

  TThriftServerType getThriftServerType()
}
