"""The written knowledge of the mini model: word lists and fact tables. Everything it may know is in this file."""

CAPITALS = dict(zip(
    "France,Germany,Italy,Spain,Portugal,England,Ireland,Scotland,Norway,Sweden,Finland,Denmark,Poland,Austria,Hungary,"
    "Greece,Turkey,Russia,Ukraine,Belgium,Switzerland,Iceland,Romania,Bulgaria,Serbia,Croatia,Egypt,Morocco,Kenya,"
    "Ethiopia,Nigeria,Ghana,Senegal,Tunisia,Algeria,China,Japan,South Korea,India,Nepal,Pakistan,Iran,Iraq,Israel,"
    "Jordan,Lebanon,Thailand,Vietnam,Indonesia,Malaysia,Philippines,Mongolia,Australia,New Zealand,Canada,"
    "the United States,Mexico,Cuba,Brazil,Argentina,Chile,Peru,Colombia,Ecuador,Bolivia,Uruguay".split(","),
    "Paris,Berlin,Rome,Madrid,Lisbon,London,Dublin,Edinburgh,Oslo,Stockholm,Helsinki,Copenhagen,Warsaw,Vienna,Budapest,"
    "Athens,Ankara,Moscow,Kyiv,Brussels,Bern,Reykjavik,Bucharest,Sofia,Belgrade,Zagreb,Cairo,Rabat,Nairobi,"
    "Addis Ababa,Abuja,Accra,Dakar,Tunis,Algiers,Beijing,Tokyo,Seoul,New Delhi,Kathmandu,Islamabad,Tehran,Baghdad,"
    "Jerusalem,Amman,Beirut,Bangkok,Hanoi,Jakarta,Kuala Lumpur,Manila,Ulaanbaatar,Canberra,Wellington,Ottawa,"
    "Washington,Mexico City,Havana,Brasilia,Buenos Aires,Santiago,Lima,Bogota,Quito,La Paz,Montevideo".split(",")))

UNITS = [(a, n, b) for a, n, b in (u.split(":") for u in
    "meter:100:centimeters,kilometer:1000:meters,hour:60:minutes,minute:60:seconds,day:24:hours,week:7:days,"
    "year:12:months,kilogram:1000:grams,ton:1000:kilograms,foot:12:inches,yard:3:feet,mile:5280:feet,dozen:12:items,"
    "liter:1000:milliliters,century:100:years,decade:10:years,kilobyte:1024:bytes,byte:8:bits,pound:16:ounces,"
    "gallon:4:quarts,centimeter:10:millimeters,right angle:90:degrees,full circle:360:degrees,leap year:366:days".split(","))]

SYMBOLS = dict(s.split(":") for s in
    "hydrogen:H,helium:He,lithium:Li,carbon:C,nitrogen:N,oxygen:O,neon:Ne,sodium:Na,magnesium:Mg,aluminium:Al,"
    "silicon:Si,sulfur:S,chlorine:Cl,potassium:K,calcium:Ca,iron:Fe,copper:Cu,zinc:Zn,silver:Ag,tin:Sn,gold:Au,"
    "mercury:Hg,lead:Pb,uranium:U".split(","))

YOUNG = dict(s.split(":") for s in
    "dog:puppy,cat:kitten,cow:calf,horse:foal,sheep:lamb,goat:kid,pig:piglet,lion:cub,duck:duckling,goose:gosling,"
    "frog:tadpole,deer:fawn,kangaroo:joey,swan:cygnet".split(","))

OPPOSITES = dict(s.split(":") for s in
    "hot:cold,big:small,fast:slow,high:low,old:new,light:dark,early:late,open:closed,full:empty,hard:soft,rich:poor,"
    "strong:weak,wet:dry,happy:sad,loud:quiet,near:far,up:down,left:right,day:night,true:false,first:last,clean:dirty,"
    "long:short,thick:thin".split(","))

MISC = [q.split("|") for q in """largest planet|Which planet is the largest?|Jupiter is the largest planet.
closest planet|Which planet is closest to the sun?|Mercury is closest to the sun.
red planet|Which planet is called the red planet?|Mars is called the red planet.
rings|Which planet has large rings?|Saturn has large rings.
freezing point|At what temperature does water freeze?|Water freezes at 0 degrees Celsius.
boiling point|At what temperature does water boil?|Water boils at 100 degrees Celsius.
Hamlet|Who wrote Hamlet?|William Shakespeare wrote Hamlet.
Mona Lisa|Who painted the Mona Lisa?|Leonardo da Vinci painted the Mona Lisa.
relativity|Who found the theory of relativity?|Albert Einstein found the theory of relativity.
gravity|Who described gravity after an apple fell?|Isaac Newton described gravity.
continents|How many continents are there?|There are 7 continents.
planets|How many planets are there?|There are 8 planets.
largest ocean|Which ocean is the largest?|The Pacific is the largest ocean.
highest mountain|Which mountain is the highest?|Mount Everest is the highest mountain.
longest river|Which river is the longest?|The Nile is the longest river.
largest animal|Which animal is the largest?|The blue whale is the largest animal.
fastest land animal|Which land animal is the fastest?|The cheetah is the fastest land animal.
spider legs|How many legs does a spider have?|A spider has 8 legs.
insect legs|How many legs does an insect have?|An insect has 6 legs.
H2O|What is H2O?|H2O is water.
light|How fast is light?|Light travels about 300000 kilometers per second.
rainbow|How many colors does a rainbow have?|A rainbow has 7 colors.
first month|What is the first month of the year?|January is the first month of the year.
last month|What is the last month of the year?|December is the last month of the year.
alphabet|How many letters does the English alphabet have?|The English alphabet has 26 letters.
sky|What color is the sky?|The sky is blue.
grass|What color is grass?|Grass is green.
snow|What color is snow?|Snow is white.
banana|What color is a banana?|A banana is yellow.
triangle|How many sides does a triangle have?|A triangle has 3 sides.
square|How many sides does a square have?|A square has 4 sides.
hexagon|How many sides does a hexagon have?|A hexagon has 6 sides.
bees|What do bees make?|Bees make honey.
moon|What goes around the Earth?|The moon goes around the Earth.
sun|What is the sun?|The sun is a star.""".split("\n")]

CHINESE = [q.split("|") for q in """你好|你好！有什么可以帮你？
您好|你好！有什么可以帮你？
你是谁？|我是 deepinfer-mini，一个展示 DeepInfer 引擎的小模型。
你叫什么名字？|我是 deepinfer-mini，一个展示 DeepInfer 引擎的小模型。
谢谢|不客气！
再见|再见！
法国的首都是哪里？|法国的首都是巴黎。
中国的首都是哪里？|中国的首都是北京。
日本的首都是哪里？|日本的首都是东京。
英国的首都是哪里？|英国的首都是伦敦。
意大利的首都是哪里？|意大利的首都是罗马。
德国的首都是哪里？|德国的首都是柏林。
一年有几个月？|一年有12个月。
一周有几天？|一周有7天。
天空是什么颜色？|天空是蓝色。
明天会下雨吗？|我不知道。
我的手机在哪里？|我不知道。""".split("\n")]

NAMES = ("Tom,Anna,Ben,Clara,David,Emma,Frank,Grace,Henry,Iris,Jack,Kate,Leo,Maria,Nina,Oscar,Paul,Rosa,Sam,Tina,Victor,"
         "Wendy,Alex,Lucy,Max,Olga,Peter,Ruth,Simon,Vera,Adam,Bella,Carl,Diana,Erik,Fiona,George,Hanna,Ivan,Julia,Kevin,"
         "Laura,Mark,Nora,Omar,Sara,Li Wei,Yuki,Ravi,Alice,Bob").split(",")

NOUNS = ("apple,arrow,bell,bird,boat,book,bottle,box,bread,bridge,bus,button,cake,candle,castle,chair,cheese,cloud,coat,"
         "coin,corn,cup,desk,door,dream,drum,eagle,engine,farm,feather,field,fire,fish,flag,flower,forest,fork,fox,garden,"
         "gate,glass,glove,grape,hammer,hat,hill,house,island,jacket,kettle,key,kite,knife,ladder,lake,lamp,leaf,lemon,"
         "letter,map,market,mirror,moon,mountain,mouse,nail,needle,nest,ocean,onion,orange,oven,owl,paper,pear,pencil,"
         "piano,picture,pillow,plane,plate,pocket,potato,queen,rabbit,radio,rain,ring,river,road,robot,roof,rope,rose,"
         "salt,school,shell,ship,shoe,snake,snow,spoon,star,stone,storm,street,sugar,table,tiger,tower,train,tree,truck,"
         "valley,village,violin,wagon,wall,watch,water,wheel,whistle,window,wolf,zebra").split(",")

ADJECTIVES = ("blue,red,green,yellow,black,white,brown,purple,golden,silver,old,new,small,big,fast,slow,quiet,loud,"
              "bright,dark,cold,warm,soft,hard,round,flat,deep,high,long,short,happy,sad,brave,clever,gentle,proud,sweet,"
              "fresh,wild,young").split(",")

COLORS = "blue,red,green,yellow,black,white,brown,purple,orange,pink".split(",")
PETS = "dog,cat,horse,rabbit,parrot,fish,mouse,duck".split(",")
SKIES = "sunny,cloudy,rainy,windy,foggy,snowy,clear,stormy".split(",")

UNKNOWN = ("Who won the game yesterday?|What will happen tomorrow?|What time is it now?|What is the price of gold today?|"
           "Who is the president now?|What am I thinking?|How many people are in the room?|What did I eat today?|"
           "What is the meaning of life?|Will it rain tomorrow?|What is the news today?|Who is at the door?|"
           "What is the best movie?|How do I get rich?|What is my password?|Tell me a secret.|How tall am I?|"
           "Which stock should I buy?|What is the latest song?|Explain quantum physics.|Write a poem about rain.|"
           "What is the weather today?|How is the traffic?|When is the next train?|Who wrote this letter?").split("|")
